"""Result tables for export: times in microseconds, column names of the JSON schema."""

import math
from typing import Any

import pandas as pd

from tracekit.analyzers.results import Analysis

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
