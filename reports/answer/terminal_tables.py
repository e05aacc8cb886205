"""The tables of an analysis for a terminal."""

import math
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.analyzers.core import Interval
from tracekit.analyzers.results import Analysis
from tracekit.reports.answer.measured import MeasuredGain, measured_gains, of_advice
from tracekit.reports.words import (
    abstention,
    count,
    duration,
    layer_patterns,
    measured,
    middle_truncated,
    over_steps,
    paragraph,
    percent,
    printable,
    quantity,
    rows_of,
    sentences,
    shortened,
    significant,
    speedup,
    times,
)

_NAMES = {"layers": "path", "layer_types": "type", "phases": "name", "ops": "name", "kernels": "name"}
_ROWS = 25
_NUMBERS_WIDTH, _COUNTS_WIDTH = 54, 25
_SHORTEST_NAME = 16
_USUAL, _WIDE = 90, 110
_BAR = 10


def tables(analysis: Analysis, width: int) -> list[Table]:
    """Return the tables that have rows, each with at most `_ROWS` of them, for `width` columns."""
    main = [_table(analysis, table, width) for table in _NAMES if not getattr(analysis, table).empty]
    compared = [] if analysis.counters_comparison.empty else [_counters(analysis)]
    return [*main, *compared, *([_problems(analysis)] if not analysis.problems.empty else [])]


def _table(analysis: Analysis, table: str, width: int) -> Table:
    frame = layer_patterns(analysis.layers) if table == "layers" else getattr(analysis, table)
    time = "GPU time" if analysis.source.device == "gpu" else "CPU time"
    view = _headed(_title(analysis, table, len(frame)), table.replace("_", " ").removesuffix("s"))
    waited = table == "layer_types" and bool(frame["synchronized_share"].notna().any())
    for column in ("calls", time, "share", *(["synchronized"] if waited else [])):
        view.add_column(column, justify="right", no_wrap=True)
    drawn, counted = width >= _WIDE, width >= _USUAL
    if drawn:
        view.add_column("", no_wrap=True)
    for column in ("FLOPs", "bytes") if counted else ():
        view.add_column(column, justify="right", no_wrap=True)
    for column in ("bound", "own bound"):
        view.add_column(column, no_wrap=True)
    numbers = _NUMBERS_WIDTH + (_COUNTS_WIDTH if counted else 0) + (_BAR + 3 if drawn else 0)
    numbers += len("synchronized") + 2 if waited else 0
    limit = max(_SHORTEST_NAME, width - numbers)
    longest = _longest(frame, table)
    cut = middle_truncated if table == "layers" else shortened
    names = [cut(printable(name), limit) for name in _names(longest, table)]
    rows = [_cells(name, row, drawn, counted, waited) for name, row in zip(names, rows_of(longest), strict=True)]
    if rows:  # One row with multi-line cells looks the same and is faster, because rich is slow per cell.
        view.add_row(*(Text("\n").join(column) for column in zip(*rows, strict=True)))
    return view


def _longest(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """Return the rows with the largest share: layers in tree order, other tables by time."""
    chosen = frame["share"].nlargest(_ROWS).index
    longest = frame[frame.index.isin(chosen)] if table == "layers" else frame.loc[chosen]
    return longest[longest["busy_ns"] > 0]


def _cells(name: str, row: Any, drawn: bool, counted: bool, waited: bool) -> list[Text]:
    """Return the cells of one row, with a bar if `drawn`, FLOPs and bytes if `counted`, and the share between
    synchronizations if `waited`."""
    bounds = [Text(bound, style=COLOURS.get(bound, "")) for bound in (row.bound, row.own_bound)]
    bar = [Text(_bar(row.share), style=bounds[0].style)] if drawn else []
    counts = (quantity(row.flops, "FLOP"), quantity(row.bytes, "B")) if counted else ()
    shares = (percent(row.share), *((percent(row.synchronized_share),) if waited else ()))
    numbers = (count(row.calls), duration(row.busy_ns / 1000), *shares)
    return [*map(Text, (name, *numbers)), *bar, *map(Text, counts), *bounds]


def _bar(share: float) -> str:
    """Return a bar of block characters, in steps of an eighth of a block."""
    eighths = round(8 * _BAR * min(1.0, share))
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _names(longest: pd.DataFrame, table: str) -> list[str]:
    if table != "layers":
        return [name.removeprefix("void ") for name in longest[_NAMES[table]].astype(str)]
    counted = zip(longest["name"], longest["depth"], longest["count"], strict=True)
    return ["  " * depth + name + (f" ×{number}" if number > 1 else "") for name, depth, number in counted]


def _title(analysis: Analysis, table: str, rows: int) -> str:
    modelled = ", modelled" if analysis.source.kind == "modelled" else ""
    more = f" (the {_ROWS} longest of {rows:,})" if rows > _ROWS else ""
    return f"{table.replace('_', ' ').capitalize()}{modelled}{over_steps(analysis)}{more}"


def _counters(analysis: Analysis) -> Table:
    """Return measured over counted FLOPs and bytes: the median kernel, and the range of 80 % of the kernels."""
    view = _headed("Measured by Nsight Compute over counted", "family")
    for column in ("kernels", "share", "FLOPs", "ratio", "80 % in", "bytes", "ratio", "80 % in"):
        view.add_column(column, justify="right", no_wrap=True)
    for row in rows_of(analysis.counters_comparison):
        view.add_row(
            row.family,
            f"{row.kernels:,}",
            percent(row.share),
            quantity(row.measured_flops, "FLOP"),
            *_ratio(row.flops_ratio, row.flops_ratio_p10, row.flops_ratio_p90),
            quantity(row.measured_bytes, "B"),
            *_ratio(row.bytes_ratio, row.bytes_ratio_p10, row.bytes_ratio_p90),
        )
    return view


def _ratio(median: float, low: float, high: float) -> tuple[str, str]:
    if not math.isfinite(median):
        return "", ""
    return significant(median), f"{significant(low)} to {significant(high)}"


def _problems(analysis: Analysis) -> Table:
    view = _headed("Problems", "severity")
    view.add_column("what was seen", ratio=1)
    view.add_column("what to do", ratio=1)
    for row in rows_of(analysis.problems):
        view.add_row(row.severity, Text(printable(row.message)), Text(printable(row.advice)))
    return view


def _headed(title: str, name: str) -> Table:
    view = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    view.add_column(name, no_wrap=True)
    return view


COLOURS = {"compute": "red", "memory": "bright_blue", "launch": "yellow", "latency": "magenta", "transfer": "green"}
_SHADES = {"compute": "█", "memory": "▓", "launch": "░", "latency": "▒", "transfer": "▚", "unknown": "·"}
"""Characters that are distinct without colour."""
_ADVISED = 5
_AXIS = 24
_WIDE_HEAD = 100


def head(analysis: Analysis, lines: list[tuple[str, str]], width: int) -> RenderableType:
    """Return the head, `width` columns wide. `lines` are pairs of a label and a text; the headline is first."""
    (_, headline), *rest = lines
    grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rest:
        grid.add_row(f"  {label}", _bound_bar(analysis, width) if label == "bound" else Text(printable(text)))
    return Group(Text(headline, style="bold"), Text(), grid, Text(), _advice(analysis, width))


def _bound_bar(analysis: Analysis, width: int) -> Text:
    """Return a bar of the step's time by bound, and its legend."""
    shares = [(name, share) for name, share in analysis.bound.ranked() if share > 0]
    length = max(20, min(60, width - 16))
    ends = [round(length * sum(share for _, share in shares[: n + 1])) for n in range(len(shares))]
    bar, legend, at = Text(), Text(), 0
    for (name, share), end in zip(shares, ends, strict=True):
        bar.append(_SHADES[name] * (end - at), COLOURS.get(name, "dim"))
        legend.append(f"{_SHADES[name]} ", COLOURS.get(name, "dim"))
        legend.append(f"{name} {percent(share)}   ")
        at = end
    return bar.append("\n").append_text(legend)


def _advice(analysis: Analysis, width: int) -> RenderableType:
    """Return the recommendations, with their intervals on an axis that begins at 1×."""
    if abstained := abstention(analysis):
        return paragraph(f"No recommendation: {abstained[0].lower()}{abstained[1:]}", width)
    first, gains = analysis.recommendations[:_ADVISED], measured_gains(analysis)
    axis = max(advice.speedup.high for advice in first)
    view = Table(title="What to do next", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("", "", "predicted", *(["measured"] if gains else [])):
        view.add_column(heading, no_wrap=True, header_style="dim", justify="right" if heading else "left")
    if width >= _WIDE_HEAD:
        view.add_column(f"1×{times(axis, axis):>{_AXIS - 2}}", no_wrap=True, header_style="dim")
    view.add_column("", ratio=1)
    for rank, advice in enumerate(first, 1):
        gain = of_advice(gains, advice.id)
        was = _measured(gain)
        view.add_row(
            Text(f"  {rank}.", style="dim"),
            Text(printable(advice.title), style="bold"),
            Text(speedup(advice.speedup), style="cyan"),
            *([was] if gains else []),
            *([_interval(advice.speedup, axis)] if width >= _WIDE_HEAD else []),
            Text(sentences(advice.reason), style="dim"),
        )
    more = len(analysis.recommendations) - len(first)
    return Group(view, *([Text(f"      and {more} more", style="dim")] if more else []))


def _measured(gain: MeasuredGain | None) -> Text:
    if gain is None or gain.measured is None:
        return Text("failed" if gain else "", style="red")
    return Text(measured(gain.measured), style="green" if gain.inside == "yes" else "yellow")


def _interval(interval: Interval, axis: float) -> Text:
    """Return a line from the lower to the upper end, with a mark at the expected value."""

    def place(value: float) -> int:
        return round((_AXIS - 1) * (value - 1) / (axis - 1)) if axis > 1 else 0

    low, expected, high = (
        min(max(place(end), 0), _AXIS - 1) for end in (interval.low, interval.expected, interval.high)
    )
    row = [" " if at < low or at > high else "━" for at in range(_AXIS)]
    row[expected] = "●"
    return Text("".join(row), style="cyan")
