"""Tables of a mean step: what stands beside the latency of a step is of one step, too."""

from dataclasses import replace
from typing import Any

import pandas as pd

from tracekit.analyzers.results import Analysis

_TABLES = (
    "layers",
    "layer_types",
    "layer_parts",
    "layer_ops",
    "phases",
    "ops",
    "kernels",
    "idle_causes",
    "host_causes",
)
_SUMS = frozenset(
    (
        *("busy_ns", "self_busy_ns", "duration_ns", "wall_ns", "cpu_ns", "forward_ns", "backward_ns", "idle_ns"),
        *("flops", "bytes", "calls", "kernels", "gaps"),
    )
)


def mean_step(analysis: Analysis) -> Analysis:
    """Return the analysis with sums over its steps divided by their number, except in the table of the work itself."""
    steps = len(analysis.steps)
    if steps <= 1:
        return analysis
    tables: dict[str, Any] = {name: _divided(getattr(analysis, name), steps) for name in _TABLES}
    return replace(analysis, **tables)


def _divided(table: pd.DataFrame, steps: int) -> pd.DataFrame:
    columns = [name for name in table.columns if name in _SUMS]
    return table.assign(**{name: table[name] / steps for name in columns})


def over_steps(analysis: Analysis) -> str:
    """Return, for example, ", mean of 3 steps"; "" for one step."""
    steps = len(analysis.steps)
    return f", mean of {steps:,} steps" if steps > 1 else ""


def count(value: float) -> str:
    """Return a count, which has a decimal if it is a mean."""
    return f"{value:,.0f}" if abs(value - round(value)) < 1e-6 else f"{value:,.1f}"
