"""An analysis as a document: for a terminal, and for a comment or a notebook."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from tracekit.analyzers.core import Interval
from tracekit.analyzers.results import Analysis, Recommendation
from tracekit.reports.answer.facts import key_figures
from tracekit.reports.answer.headlines import headline
from tracekit.reports.answer.measured import MeasuredGain, measured_gains, of_advice
from tracekit.reports.answer.summary_lines import lines
from tracekit.reports.document import (
    Block,
    Cell,
    Code,
    Document,
    Facts,
    Listing,
    Row,
    Section,
    Shares,
    Table,
    Text,
    row_names,
)
from tracekit.reports.words import (
    abstention,
    count,
    duration,
    layer_patterns,
    mean_step,
    measured,
    over_steps,
    percent,
    quantity,
    rows_of,
    sentences,
    significant,
    speedup,
    times,
)
from tracekit.reports.words import lines as lines_of

_NAMES = {"layers": "name", "layer_types": "type", "phases": "name", "ops": "name", "kernels": "name"}
_ROWS, _ADVISED, _AXIS = 25, 5, 24
_KIND = {
    "measured": "Measured by tracekit",
    "modelled": "Modelled: every number is a prediction, nothing was measured",
    "imported": "Recorded by another tool",
}


def terminal_document(analysis: Analysis, *, brief: bool = False) -> Document:
    """Return the headline, the summary and the recommendations; unless `brief`, also the tables."""
    facts = [(label, text) for label, text in lines(analysis) if label != "bound"]
    blocks = [Text(headline(analysis), "headline"), _shares(analysis), Facts(facts), _advice(analysis, _ADVISED)]
    return Document("Analysis", [*blocks, *([] if brief else _tables(analysis))])


def analysis_document(analysis: Analysis) -> Document:
    """Return the headline, the figures, the recommendations with their instructions, and the tables."""
    source = analysis.source
    where = [part for part in (source.device_name, source.precision, source.format) if part]
    blocks = [
        Text(headline(analysis), "headline"),
        Text(f"{', '.join([_KIND[source.kind], *where])}.", "strong" if source.kind == "modelled" else ""),
        Facts([(fact.label, fact.value) for fact in key_figures(analysis)]),
        _shares(analysis),
        _advice(analysis, len(analysis.recommendations)),
        *(
            Section(f"How: {advice.title}", list(instructions(advice)), folded=True)
            for advice in analysis.recommendations
            if advice.how_to
        ),
    ]
    return Document("Analysis", [*blocks, *_tables(analysis)])


def _shares(analysis: Analysis) -> Shares:
    return Shares([(name, share) for name, share in analysis.bound.ranked() if share > 0])


def instructions(advice: Recommendation) -> Iterator[Block]:
    """Yield how to apply an optimization, the evidence for it, and its caveats."""
    if advice.how_to:
        yield Code(advice.how_to)
    yield Listing([*lines_of(advice.evidence), *advice.caveats])


def _advice(analysis: Analysis, most: int) -> Block:
    """Return the recommendations, with their intervals on an axis that begins at 1×."""
    if abstained := abstention(analysis):
        return Text(f"No recommendation: {abstained[0].lower()}{abstained[1:]}")
    gains = measured_gains(analysis)
    axis = max(advice.speedup.high for advice in analysis.recommendations[:most])
    rows: list[Row] = [
        (
            f"{rank}.",
            Cell(advice.title, "strong"),
            Cell(speedup(advice.speedup), "predicted", _along(advice.speedup, axis)),
            *([_measured(of_advice(gains, advice.id))] if gains else []),
            Cell(sentences(advice.reason), "soft"),
        )
        for rank, advice in enumerate(analysis.recommendations, 1)
    ]
    columns = ("", "what to do next", ">predicted", *([">measured"] if gains else []), "why")
    ends = f"1×{times(axis, axis):>{_AXIS - 2}}"
    return Table(columns, rows, first=most, bars="interval", axis=ends, spare=(ends,))


def _along(gain: Interval, axis: float) -> tuple[float, ...]:
    ends = (gain.low, gain.expected, gain.high)
    return tuple((end - 1) / (axis - 1) if axis > 1 else 0.0 for end in ends)


def _measured(gain: MeasuredGain | None) -> Cell:
    if gain is None or gain.measured is None:
        return Cell("failed" if gain else "", "bad")
    return Cell(measured(gain.measured), "good" if gain.inside == "yes" else "doubtful")


def _tables(analysis: Analysis) -> list[Section]:
    """Return the tables that have rows."""
    analysis, over = mean_step(analysis, _NAMES), over_steps(analysis)
    modelled = ", modelled" if analysis.source.kind == "modelled" else ""
    frames = {name: getattr(analysis, name) for name in _NAMES}
    if len(frames["layers"]):
        frames["layers"] = layer_patterns(frames["layers"])
    tables = {
        f"{name.replace('_', ' ').capitalize()}{modelled}{over}": _table(analysis, frame, name)
        for name, frame in frames.items()
        if (frame["busy_ns"] > 0).any()
    }
    compared, problems = analysis.counters_comparison, analysis.problems
    if len(compared):
        tables["Measured by Nsight Compute over counted"] = _counters(compared)
    if len(problems):
        rows = [(row.severity, row.message, row.advice) for row in rows_of(problems)]
        tables["Problems"] = Table(("severity", "what was seen", "what to do"), rows)
    return [Section(title, [table], folded=True) for title, table in tables.items()]


def _table(analysis: Analysis, frame: pd.DataFrame, name: str) -> Table:
    """Return the rows with the largest share: layers in tree order, other tables by time."""
    chosen = frame["share"].nlargest(_ROWS).index
    longest = frame[frame.index.isin(chosen)] if name == "layers" else frame.loc[chosen]
    longest = longest[longest["busy_ns"] > 0]
    waited = name == "layer_types" and bool(frame["synchronized_share"].notna().any())
    time = "GPU time" if analysis.source.device == "gpu" else "CPU time"
    rows = [_row(row, waited) for row in rows_of(longest)]
    rows = [(each, *row) for each, row in zip(row_names(longest, _NAMES[name]), rows, strict=True)]
    columns = (">calls", f">{time}", *([">synchronized"] if waited else []), ">share", ">FLOPs", ">bytes")
    head, total = name.replace("_", " ").removesuffix("s"), int((frame["busy_ns"] > 0).sum())
    return Table((head, *columns, "bound", "own bound"), rows, total=total, spare=("", "bytes", "FLOPs"))


def _row(row: Any, waited: bool) -> Row:
    return (
        count(row.calls),
        duration(row.busy_ns / 1000),
        *([percent(row.synchronized_share)] if waited else []),
        Cell(percent(row.share), row.bound, float(row.share)),
        quantity(row.flops, "FLOP"),
        quantity(row.bytes, "B"),
        Cell(row.bound, row.bound),
        Cell(row.own_bound, row.own_bound),
    )


def _counters(compared: pd.DataFrame) -> Table:
    """Return measured over counted FLOPs and bytes: the median kernel, and the range of 80 % of the kernels."""
    rows = [
        (
            row.family,
            f"{row.kernels:,}",
            percent(row.share),
            quantity(row.measured_flops, "FLOP"),
            *_ratio(row.flops_ratio, row.flops_ratio_p10, row.flops_ratio_p90),
            quantity(row.measured_bytes, "B"),
            *_ratio(row.bytes_ratio, row.bytes_ratio_p10, row.bytes_ratio_p90),
        )
        for row in rows_of(compared)
    ]
    sides = (">ratio", ">80 % in")
    return Table(("family", ">kernels", ">share", ">FLOPs", *sides, ">bytes", *sides), rows)


def _ratio(median: float, low: float, high: float) -> tuple[str, str]:
    if not math.isfinite(median):
        return "", ""
    return significant(median), f"{significant(low)} to {significant(high)}"
