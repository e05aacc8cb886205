"""Result tables for export: of a mean step, in microseconds, with the column names of the JSON schema."""

import math
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


_RENAMED = {"steps": {"busy_us": "gpu_busy_us", "idle_us": "gpu_idle_us"}}
_COUNTED = (
    *("flops", "bytes", "counted_flops", "measured_flops", "counted_bytes", "measured_bytes", "bytes_saved"),
    *("before_flops", "after_flops", "before_bytes", "after_bytes"),
)
_EMPTY_IS_UNKNOWN = ("bound", "own_bound", "op", "layer", "family", "layer_type", "before_precision", "after_precision")


def public_frame(analysis: Analysis, table: str) -> pd.DataFrame:
    """Return one of `table_names.TABLES`, converted by `public`."""
    frame = analysis.timeline.steps if table == "steps" else getattr(analysis, table)
    return public(frame).rename(columns=_RENAMED.get(table, {}))


def public(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with `_ns` columns in microseconds, rounded to three decimals, and fractions to six."""
    frame = frame.set_axis([_name_in_microseconds(str(name)) for name in frame.columns], axis=1)
    decimals = dict.fromkeys(frame.select_dtypes("float64").columns, 6)
    times = [str(name) for name in frame.columns if str(name).endswith("_us")]
    return frame.assign(**{name: frame[name] / 1000 for name in times}).round({**decimals, **dict.fromkeys(times, 3)})


def records(analysis: Analysis, table: str) -> list[dict[str, Any]]:
    """Return the rows of one of `table_names.TABLES` for JSON."""
    return plain_rows(public_frame(analysis, table))


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a public table for JSON: NaN and unknown names are None, counts are integers."""
    columns = {name: [_plain(name, value) for value in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def number(value: float, decimals: int) -> float | None:
    """Return `value` rounded; None for NaN and infinities, which JSON cannot express."""
    return round(float(value), decimals) if math.isfinite(value) else None


def _name_in_microseconds(name: str) -> str:
    return f"{name.removesuffix('_ns')}_us" if name.endswith("_ns") else name


def _plain(column: str, value: Any) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if column in _COUNTED else value
    if column in _EMPTY_IS_UNKNOWN:
        return value or None
    return None if column in ("parent", "module") and value < 0 else value
