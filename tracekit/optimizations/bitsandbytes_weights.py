"""Weights in fewer bits by bitsandbytes, which replaces every linear layer but the head, GPT-2's Conv1D too."""

import pandas as pd

from analyzers.prediction.baseline import Baseline
from analyzers.prediction.memory import Memory
from tracekit.optimizations.base import Optimization
from tracekit.optimizations.by_cost import distinct
from tracekit.optimizations.linear_products import inner_products, linear_product, shrunk, stored_bytes

SAVES_MEMORY = "It saves memory, not time: use it when the weights do not fit otherwise."


class BitsAndBytes(Optimization):
    """Shared by the formats; it computes in 16 bits."""

    contains = "half-precision"
    bytes_a_weight: float

    def evidence(self, base: Baseline) -> tuple[str, ...]:
        stored = stored_bytes(base, replaced(base))
        return (f"{stored / 1e6:.0f} MB of weights in the layers that it replaces",)

    def memory(self, base: Baseline, before: Memory) -> Memory:
        rows = replaced(base)
        element = max(product.element for cost in distinct(base.ops.cost[rows]) if (product := linear_product(cost)))
        return shrunk(before, stored_bytes(base, rows), self.bytes_a_weight / element)


def replaced(base: Baseline) -> "pd.Series[bool]":
    """Rows of the op list that multiply by weights which change their format."""
    return inner_products(base, conv1d=True)
