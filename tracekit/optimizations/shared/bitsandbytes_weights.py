"""Weights in fewer bits by bitsandbytes, which replaces every linear layer (and Conv1D of GPT-2) except the head."""

from tracekit.analyzers.evidence import Statements
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.memory import Memory
from tracekit.analyzers.transforms.by_cost import Rows, distinct
from tracekit.analyzers.transforms.linear_products import inner_products, linear_product, shrunk, stored_bytes
from tracekit.optimizations.base import Optimization
from tracekit.optimizations.half_precision import HalfPrecision
from tracekit.optimizations.shared.reasons import largest, of_step, say

_HALF = 2
"""Bytes per 16-bit element."""
SAVES_MEMORY = "It saves memory, not time: use it when the weights do not fit otherwise."


class BitsAndBytes(Optimization):
    """Base class of bitsandbytes' formats, which compute in 16 bits."""

    contains = ("half-precision",)
    bytes_a_weight: float

    def evidence(self, base: Baseline) -> Statements:
        rows = replaced(base)
        return (say("weights-replaced", of_step("weights", "bytes", stored_bytes(base, rows))), *largest(base, rows))

    def memory(self, base: Baseline, before: Memory) -> Memory:
        """Change the size of replaced weights, and cast all others to 16 bits."""
        rows = replaced(base)
        element = max(product.element for cost in distinct(base.ops.cost[rows]) if (product := linear_product(cost)))
        in_half = HalfPrecision().memory(base, before) if element > _HALF else before
        stored = round(stored_bytes(base, rows) * min(1, _HALF / element))
        return shrunk(in_half, stored, self.bytes_a_weight / _HALF)


def replaced(base: Baseline) -> Rows:
    """Return the rows of the op list that multiply by weights whose format changes."""
    return inner_products(base, conv1d=True)
