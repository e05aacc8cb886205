"""A sweep as a document: its crossovers, small multiples of each measure, and the table."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import pandas as pd
from msgspec import structs

from tracekit.analyzers.predict import MEASURED, MODELLED, NONE, Crossover, Scaling, crossovers
from tracekit.reports.document import Document, Drawn, Listing, Section, Table, Text
from tracekit.reports.words import (
    ABSENT,
    duration,
    json_text,
    percent,
    quantity,
    significant,
    times,
)

_HEAD = ("GPU", ">batch", ">tokens", "apply", "source", ">step", ">per second", ">speed-up", ">memory", ">idle")
_MODELLED = "Modelled: every number is a prediction; nothing was measured."
_SOME_MEASURED = "Measured rows and sentences are marked; every other number is modelled, a prediction."
_SERIES = ["gpu", "apply", "source"]
_REFUSED = {MODELLED: "cannot be applied", MEASURED: "was not measured"}
_LACKS = {MODELLED: "refused", MEASURED: "not measured"}


def sentences(sweep: pd.DataFrame) -> list[str]:
    """Return a sentence for each crossover, one on how close predictions are to measurements, and one for each reason
    why an optimization cannot be applied or was not measured."""
    return [*dict.fromkeys(_sentence(each) for each in crossovers(sweep)), *_nearness(sweep), *_refusals(sweep)]


def basis(sweep: pd.DataFrame) -> str:
    """Return the sentence that states which numbers are predictions."""
    return _SOME_MEASURED if (sweep["source"] == MEASURED).any() else _MODELLED


def _nearness(sweep: pd.DataFrame) -> list[str]:
    """Return a sentence for each GPU with both predicted and measured points."""
    known = sweep[sweep["refused"] == ""]
    sides = [known[known["source"] == source] for source in (MODELLED, MEASURED)]
    both = sides[0].merge(sides[1], on=["gpu", "batch_size", "seq_len", "apply"], suffixes=("", "_measured"))
    return [_compared_with_measured(str(gpu), rows) for gpu, rows in both.groupby("gpu", sort=False)]


def _compared_with_measured(gpu: str, rows: pd.DataFrame) -> str:
    ratio, changed = rows["latency_ns_measured"] / rows["latency_ns"], rows[rows["apply"] != NONE]
    between = " to ".join(dict.fromkeys((significant(ratio.min()), significant(ratio.max()))))
    steps = f"A measured step on {gpu} took {between} times the predicted time."
    inside = changed["speedup_measured"].between(changed["speedup_low"], changed["speedup_high"]).sum()
    gains = f" {inside} of {len(changed)} measured speed-ups lie in their predicted intervals."
    return steps + (gains if len(changed) else "")


def _sentence(change: Crossover) -> str:
    at, across = _setting(change.axis, change.at), {"seq_len": "batch_size", "batch_size": "seq_len"}[change.axis]
    where = f" at {_setting(across, change.other)}" if change.other or change.axis == "seq_len" else ""
    if change.kind == "fits up to":
        largest = f"Batch {change.at:,} is the largest that fits" if change.at else "Not even batch 1 fits"
        return f"{largest} on {change.gpu}{where}."
    if change.kind == "host up to":
        return f"The host stops mattering at {at}{where} on {change.gpu}."
    gain = times(change.gain, change.gain) + (", measured" if change.source == MEASURED else "")
    return f"{change.apply} {change.kind} {at}{where} on {change.gpu} ({gain} there)."


def _refusals(sweep: pd.DataFrame) -> list[str]:
    refused = sweep[sweep["refused"] != ""]
    points: dict[Any, int] = sweep.groupby(_SERIES, sort=False).size().to_dict()
    lines = []
    for (gpu, apply, source, why), rows in refused.groupby([*_SERIES, "refused"], sort=False):
        number = points[gpu, apply, source]
        everywhere = "" if len(rows) == number else f" at {len(rows)} of {number} points"
        lines.append(f"{apply} {_REFUSED[str(source)]} on {gpu}{everywhere}: {why}")
    return lines


def _cells(row: object) -> tuple[str, ...]:
    values = row._asdict()  # type: ignore[attr-defined]
    point = (values["gpu"], f"{values['batch_size']:,}", f"{values['seq_len']:,}", values["apply"], values["source"])
    if values["refused"]:
        return (*point, ABSENT, ABSENT, _LACKS[values["source"]], ABSENT, ABSENT)
    gain = times(values["speedup"], values["speedup"]) if values["apply"] != NONE else ABSENT
    memory = _known(values["memory_bytes"], _bytes) + ("" if values["fits"] else ", too much")
    speed = (duration(values["latency_ns"] / 1e3), significant(values["rate"]), gain)
    return (*point, *speed, memory, _known(values["idle_share"], percent))


def _bytes(value: float) -> str:
    return quantity(value, "B")


def _known(value: float, words: Callable[[float], str]) -> str:
    return ABSENT if math.isnan(value) else words(value)


def _points(sweep: pd.DataFrame) -> Table:
    return Table(_HEAD, [_cells(row) for row in sweep.itertuples(index=False)])


_KINDS = ("latency_us", "efficiency")


def scaling_text(scaling: Scaling) -> str:
    """Return three lines: the step before and after, the throughput, and the added time."""
    took, kept = scaling.latency_us, scaling.efficiency
    return (
        f"{duration(scaling.one_us)} per step on one GPU, {duration(took.expected)} on each of {scaling.ranks} "
        f"({duration(took.low)} to {duration(took.high)})\n"
        f"{scaling.ranks * kept.expected:.2f} times the throughput of one GPU: {100 * kept.expected:.0f} % of each "
        f"({100 * kept.low:.0f} to {100 * kept.high:.0f} %)\n"
        f"{quantity(scaling.gradient_bytes, 'B')} of gradients in {scaling.buckets} buckets: "
        f"all-reduces take {duration(scaling.transfer_us)}, {duration(scaling.exposed_us)} of it exposed; "
        f"copies {duration(scaling.copies_us)}; host {duration(scaling.host_us)} more\n"
    )


def to_json(scaling: Scaling) -> str:
    """Return the values as JSON; intervals have low, expected and high."""
    values = asdict(scaling) | {name: structs.asdict(getattr(scaling, name)) for name in _KINDS}
    return json_text({"schema_version": "1.0", **values})


_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 300, 170, 52, 8, 10, 22
COLOURS = 8
"""Classes of lines in sweep.css, line-0 and so on; further lines use them again."""
_MEASURES = (
    ("latency_ns", "Step", True),
    ("rate", "Per second", True),
    ("speedup", "Speed-up over none", False),
    ("memory_bytes", "Memory", False),
)


@dataclass(frozen=True)
class _Scale:
    """Maps a value to a height in a panel; logarithmic if the values span orders of magnitude."""

    low: float
    high: float
    logarithmic: bool

    def height(self, value: float) -> float:
        low, high, at = (math.log(each) if self.logarithmic else each for each in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def sweep_document(sweep: pd.DataFrame, title: str) -> Document:
    """Return the points, the crossovers, and a panel for each measure and value of the other axis."""
    applies = list(dict.fromkeys(sweep["apply"]))
    lines = {name: f"line-{number % COLOURS}" for number, name in enumerate(applies)}
    x, other = ("seq_len", "batch_size") if sweep["batch_size"].nunique() == 1 else ("batch_size", "seq_len")
    along = "batch size" if x == "batch_size" else "tokens"
    legend = {"lines": lines, "measured": (sweep["source"] == MEASURED).any()}
    blocks = [
        Section("Points", [_points(sweep)]),
        Listing(sentences(sweep)),
        Text(basis(sweep), "soft"),
        Drawn("lines", legend),
        *(
            Section(f"{gpu}, by {along}", list(_measures(rows, x, other, lines)))
            for gpu, rows in sweep.groupby("gpu", sort=False)
        ),
    ]
    return Document(f"When it flips: {title}", blocks, "sweep", ("bench", "sweep"))


def _measures(rows: pd.DataFrame, x: str, other: str, lines: dict[str, str]) -> Iterator[Section]:
    """Yield the panels of each measure, one for each value of the other axis. They share a scale."""
    for name, label, logarithmic in _MEASURES:
        scale = _scale(rows[name], logarithmic)
        if scale is None:
            continue
        panels = [
            {"title": _setting(other, int(str(value))), "svg": _panel(part, x, name, scale, lines)}
            for value, part in rows.groupby(other, sort=True)
        ]
        yield Section(label, [Drawn("figures", {"kind": "facets", "figures": panels})])


def _setting(axis: str, value: int) -> str:
    return f"{value:,} tokens" if axis == "seq_len" else f"batch {value:,}"


def _scale(values: "pd.Series[float]", logarithmic: bool) -> _Scale | None:
    known = values[values > 0].dropna()
    if known.empty:
        return None
    low, high = float(known.min()), float(known.max())
    return _Scale(low * 0.8, high * 1.25, True) if logarithmic else _Scale(0.0, high * 1.08, False)


def _panel(rows: pd.DataFrame, x: str, name: str, scale: _Scale, lines: dict[str, str]) -> str:
    places = sorted(rows[x].unique().tolist())
    at = {value: _x_position(index, len(places)) for index, value in enumerate(places)}
    parts = [_axes(at, name, scale)]
    if name == "speedup" and scale.low <= 1 <= scale.high:
        parts.append(_level(scale.height(1.0)))
    for (apply, source), line in rows.groupby(["apply", "source"], sort=False):
        if name == "speedup" and apply == NONE:
            continue
        drawn = line[line[name] > 0].sort_values(x)[[x, name]].values
        style = lines[str(apply)] + (" measured" if source == MEASURED else "")
        parts.append(_line([(at[each[0]], scale.height(each[1])) for each in drawn], style))
        label = f"{apply}, {source}"
        parts += [_dot(at[row[0]], scale.height(row[1]), f"{label}: {_value(name, row[1])}", style) for row in drawn]
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'


def _x_position(index: int, count: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((index + 0.5) / count)


def _axes(at: dict[int, float], name: str, scale: _Scale) -> str:
    bottom = _HEIGHT - _BOTTOM
    marks = [f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}"/>']
    for value in _ticks(scale):
        y = scale.height(value)
        marks.append(f'<text class="label" x="{_LEFT - 6}" y="{y:.1f}">{escape(_value(name, value))}</text>')
        marks.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
    marks += [f'<text class="tick" x="{x:.1f}" y="{bottom + 12}">{value:,}</text>' for value, x in at.items()]
    return "".join(marks)


def _ticks(scale: _Scale) -> list[float]:
    if not scale.logarithmic:
        return [scale.high * part / 1.08 for part in (0.0, 0.5, 1.0)]
    low, high = math.log(scale.low / 0.8), math.log(scale.high / 1.25)
    return [math.exp(low + (high - low) * part) for part in ((0.0, 0.5, 1.0) if high > low else (0.0,))]


def _level(y: float) -> str:
    return f'<path class="one" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'


def _line(points: Sequence[tuple[float, float]], style: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{style}" points="{path}"/>' if len(points) > 1 else ""


def _dot(x: float, y: float, title: str, style: str) -> str:
    return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{escape(title)}</title></circle>'


def _value(name: str, value: float) -> str:
    if name == "latency_ns":
        return duration(value / 1e3)
    if name == "speedup":
        return times(value, max(value, 2.0)) if value else "0"
    return (
        quantity(value, "B") if name == "memory_bytes" else significant(value) if value < 1e4 else quantity(value, "")
    )
