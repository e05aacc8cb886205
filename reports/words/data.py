"""What programs read: tables of a mean step, with the names of the JSON schemas, escaped as JSON and CSV need it."""

import json
import math
import re
from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.results import Analysis
from tracekit.reports.words.names import UNPRINTABLE, printable

if TYPE_CHECKING:
    import pandas as pd


_FORMULA = re.compile(r"\s*[=+\-@\uff0b\uff0d\uff1d\uff20]")
_GUARD = "'"
_RAW_IN_JSON = re.compile(UNPRINTABLE.pattern.replace("\x00-\x1f", ""))
"""JSON encoders escape the characters below 0x20 themselves."""


def printable_lines(text: str) -> str:
    """Return `text` made printable; line breaks and tabs are kept."""
    if text.isascii() and text.isprintable():
        return text
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def csv_cell(text: str) -> str:
    """Return `text` for a CSV cell; an apostrophe in front keeps a spreadsheet from evaluating a formula."""
    safe = printable(text)
    return _GUARD + safe if _FORMULA.match(safe) else safe


def from_csv_cell(text: str) -> str:
    """Return the text that `csv_cell` escaped; replaced characters are not restored."""
    return text.removeprefix(_GUARD) if _FORMULA.match(text, len(_GUARD)) else text


def csv_table(frame: "pd.DataFrame") -> str:
    """Return a table as CSV with a header row; unknown values are empty."""
    texts = frame.select_dtypes(exclude=["number", "bool"])
    cells = {name: [_cell(value) for value in texts[name]] for name in texts.columns}
    return frame.assign(**cells).to_csv(index=False, lineterminator="\n")


def _cell(value: Any) -> Any:
    return csv_cell(value) if isinstance(value, str) else value


def json_text(value: Any) -> str:
    """Return `value` as indented JSON that has only printable characters."""
    return escaped_json(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def escaped_json(text: str) -> str:
    r"""Return JSON with every unprintable character written as \uXXXX, so that no name is changed."""
    return _RAW_IN_JSON.sub(lambda character: f"\\u{ord(character[0]):04x}", text)


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


def mean_step(analysis: Analysis, names: Iterable[str] = _TABLES) -> Analysis:
    """Return the analysis with sums over its steps divided by their number in these tables.

    FLOPs and bytes of a row are absent if those of most of its work are unknown and the rest computes nothing.
    """
    steps = max(len(analysis.steps), 1)
    tables: dict[str, Any] = {name: _known(_divided(getattr(analysis, name), steps)) for name in names}
    return replace(analysis, **tables)


def _known(table: pd.DataFrame) -> pd.DataFrame:
    if "own_bound" not in table or "flops" not in table:
        return table
    few = (table["own_bound"] == "") & ~(table["flops"] > 0)
    if not few.any():
        return table
    return table.assign(flops=table["flops"].mask(few), bytes=table["bytes"].mask(few))


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
    """Return one of `names.TABLES`, converted by `public`."""
    frame = analysis.timeline.steps if table == "steps" else getattr(analysis, table)
    return public(frame).rename(columns=_RENAMED.get(table, {}))


def public(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with `_ns` columns in microseconds, rounded to three decimals, and fractions to six."""
    frame = frame.set_axis([_name_in_microseconds(str(name)) for name in frame.columns], axis=1)
    decimals = dict.fromkeys(frame.select_dtypes("float64").columns, 6)
    times = [str(name) for name in frame.columns if str(name).endswith("_us")]
    return frame.assign(**{name: frame[name] / 1000 for name in times}).round({**decimals, **dict.fromkeys(times, 3)})


def records(analysis: Analysis, table: str) -> list[dict[str, Any]]:
    """Return the rows of one of `names.TABLES` for JSON."""
    return plain_rows(public_frame(analysis, table))


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a public table for JSON: NaN and unknown names are None, counts are integers."""
    columns = {name: [_plain(name, value) for value in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def number(value: float, decimals: int) -> float | None:
    """Return `value` rounded; None for NaN and infinities, which JSON cannot express."""
    return round(float(value), decimals) if math.isfinite(value) else None


def fields(value: Any, names: str) -> dict[str, Any]:
    """Return attributes of `value` for JSON by their names, which are separated by spaces.

    Behind a name, ":4" rounds to four decimals, and "?" makes None of what is empty. `_ns` become `_us`.
    """
    return dict(_field(value, *name.partition(":")[::2]) for name in names.split())


def _field(value: Any, name: str, decimals: str) -> tuple[str, Any]:
    found = getattr(value, name.removesuffix("?"))
    if name.endswith("_ns"):
        return _name_in_microseconds(name), number(found / 1e3, 3)
    if decimals:
        return name, number(found, int(decimals))
    return name.removesuffix("?"), found or None if name.endswith("?") else found


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


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of "analysis", "brief" or "prediction"."""
    return json.loads((files("tracekit.reports") / f"{name}.schema.json").read_text("utf-8"))
