"""An analysis as Markdown, for a comment on GitHub."""

from typing import Any

import pandas as pd

from tracekit.analyzers.results import Analysis
from tracekit.reports.answer.facts import key_figures
from tracekit.reports.answer.headlines import headline
from tracekit.reports.answer.measured import measured_gains, of_advice
from tracekit.reports.words import (
    abstention,
    bar,
    block,
    code,
    count,
    duration,
    folded,
    layer_patterns,
    mean_step,
    measured,
    over_steps,
    percent,
    prose,
    quantity,
    rows_of,
    sentences,
    speedup,
    table,
)

_ROWS = 15
_KIND = {
    "measured": "Measured by tracekit",
    "modelled": "**Modelled: every number is a prediction, nothing was measured**",
    "imported": "Recorded by another tool",
}


def render(analysis: Analysis) -> str:
    """Return Markdown: headline, key figures, bounds and recommendations; code, tables and problems are collapsed."""
    return "\n\n".join(
        [
            f"**{prose(headline(analysis))}**",
            f"{_KIND[analysis.source.kind]}{_where(analysis)}.",
            _figures(analysis),
            _bounds(analysis),
            _advice(analysis),
            *(folded(f"How: {advice.title}", _how(advice)) for advice in analysis.recommendations if advice.how_to),
            *_tables(analysis),
            "",
        ]
    )


def _where(analysis: Analysis) -> str:
    source = analysis.source
    return "".join(f", {prose(part)}" for part in (source.device_name, source.precision, source.format) if part)


def _figures(analysis: Analysis) -> str:
    facts = key_figures(analysis)
    return table([f">{prose(fact.label)}" for fact in facts], [[prose(fact.value) for fact in facts]])


def _bounds(analysis: Analysis) -> str:
    rows = [
        (name, f"`{bar(share)}`", prose(percent(share)))
        for name, share in analysis.bound.ranked()
        if round(share, 4) > 0
    ]
    return table(("bound by", "", ">of the step"), rows)


def _advice(analysis: Analysis) -> str:
    if abstained := abstention(analysis):
        return prose(abstained)
    gains = measured_gains(analysis)
    rows = []
    for rank, advice in enumerate(analysis.recommendations, 1):
        gain = of_advice(gains, advice.id)
        was = measured(gain.measured) if gain and gain.measured else ""
        row = [str(rank), prose(advice.title), speedup(advice.speedup), *([was] if gains else [])]
        rows.append([*row, prose(sentences(advice.reason))])
    return table((">", "what to do next", ">predicted", *([">measured"] if gains else []), "why"), rows)


def _how(advice: Any) -> str:
    caveats = "\n".join(f"- {prose(line)}" for line in advice.caveats)
    return "\n\n".join(
        part
        for part in (block(advice.how_to, "" if advice.how_to.startswith("tracekit ") else "python"), caveats)
        if part
    )


def _tables(analysis: Analysis) -> list[str]:
    analysis, over = mean_step(analysis), over_steps(analysis)
    layers = layer_patterns(analysis.layers)
    kept = {
        "Kernels": (analysis.kernels, "name"),
        "Layers": (layers, "name"),
        "Ops": (analysis.ops, "name"),
    }
    sections = [
        folded(f"{title}{over}", _rows(frame, name))
        for title, (frame, name) in kept.items()
        if (frame["busy_ns"] > 0).any()
    ]
    return [*sections, *([folded("Problems", _problems(analysis))] if len(analysis.problems) else [])]


def _rows(frame: pd.DataFrame, name: str) -> str:
    working = frame[frame["busy_ns"] > 0]
    rows = rows_of(working[working.index.isin(working["busy_ns"].nlargest(_ROWS).index)])
    cells = [
        (
            "&emsp;" * getattr(row, "depth", 0) + code(getattr(row, name).removeprefix("void ")) + _many(row),
            count(row.calls),
            duration(row.busy_ns / 1e3),
            prose(percent(row.share)),
            quantity(row.flops, "FLOP"),
            quantity(row.bytes, "B"),
            row.bound,
            row.own_bound,
        )
        for row in rows
    ]
    more = f"\n\nThe {len(rows)} longest of {len(working):,}." if len(working) > len(rows) else ""
    return table(("name", ">calls", ">time", ">share", ">FLOPs", ">bytes", "bound", "own bound"), cells) + more


def _many(row: Any) -> str:
    count = getattr(row, "count", 1)
    return f" × {count}" if isinstance(count, int) and count > 1 else ""


def _problems(analysis: Analysis) -> str:
    rows = zip(analysis.problems["severity"], analysis.problems["message"], analysis.problems["advice"], strict=True)
    return table(("severity", "what was seen", "what to do"), [[prose(str(cell)) for cell in row] for row in rows])
