"""The HTML report of an analysis: one page that needs no other file and no network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.analyzers.results import CAUSES, Analysis, PlanStep
from tracekit.reports.answer import cards, facts, plans
from tracekit.reports.answer.headlines import headline
from tracekit.reports.answer.measured import MeasuredGain, measured_blocks, measured_gains, of_steps
from tracekit.reports.answer.page_tables import table_views
from tracekit.reports.document import Cell, Row, Shares, Table, packed_json, packed_plotly, page, plotly_source
from tracekit.reports.figures import BOUND_NAMES, GLYPHS, KINDS, Figure, bound_title, icicle, placed, roofline, timeline
from tracekit.reports.words import (
    ABSENT,
    ROW_LIMIT,
    TableView,
    device,
    duration,
    mean_step,
    measured,
    model,
    numbers,
    over_steps,
    printable,
    quantity,
    speedup,
    why,
)

Entries = list[tuple[str, str]]


@dataclass(frozen=True)
class Charts:
    """Figures and notes by the id of their element in the page."""

    specs: dict[str, Figure]
    notes: dict[str, str]
    symbols: Entries
    """(bound, glyph) of the marks on the roofline."""
    lanes: list[tuple[str, Entries]]
    """The legend of the timeline: (group, [(class of the swatch, label)])."""


def charts(analysis: Analysis) -> Charts:
    """Return the charts for which the analysis holds data."""
    specs: dict[str, Figure] = {}
    notes: dict[str, str] = {}
    if analysis.timeline.busy_ns > 0:
        specs["icicle"], notes["icicle"] = icicle(analysis)
    plot = roofline(analysis)
    if plot:
        specs["roofline"], notes["roofline"] = plot, _unplaced(analysis)
    drawn = timeline(analysis)
    if drawn:
        specs["timeline"], notes["timeline"] = drawn
    return Charts(specs, notes, _symbols(analysis) if plot else [], _lanes(analysis) if drawn else [])


def _unplaced(analysis: Analysis) -> str:
    absent = analysis.kernels.drop(placed(analysis).index)
    if absent.empty:
        return ""
    share = numbers.percent(absent["share"].sum())
    count = f"{len(absent)} kernels" if len(absent) > 1 else "1 kernel"
    return f"Not on the plot: {count} with almost no arithmetic or time, {share} of the busy time."


def _symbols(analysis: Analysis) -> Entries:
    tables = (analysis.kernels, analysis.ops, analysis.layers)
    return [(name, GLYPHS[name]) for name in BOUND_NAMES if any((table["own_bound"] == name).any() for table in tables)]


def _lanes(analysis: Analysis) -> list[tuple[str, Entries]]:
    work = [(name or "unknown", bound_title(name)) for name in BOUND_NAMES if (analysis.work["bound"] == name).any()]
    idle = [(f"gap-{name or 'unknown'}", name or "unknown") for name in (*CAUSES, "") if _has(analysis, name)]
    host = [(f"host-{kind}", label) for kind, label in _HOST.items() if (analysis.host_spans["kind"] == kind).any()]
    groups = [("GPU work" if analysis.source.device == "gpu" else "work", work), ("idle for", idle), ("host", host)]
    return [(group, entries) for group, entries in groups if entries]


_HOST = {"op": "op", "launch": "launch", "sync": "synchronisation", "call": "other call"}


def _has(analysis: Analysis, cause: str) -> bool:
    return bool((analysis.gaps["cause"] == cause).any())


MOST_BYTES = 5_000_000
ROW_LIMITS = (ROW_LIMIT, 500, 150, 50)
"""Limits on the rows of a table; the first one for which the page is at most `MOST_BYTES` is used."""
_SCRIPTS = (
    "dom",
    "folding",
    "tables",
    "tabs",
    "copying",
    "tips",
    "layer_tree",
    "icicle",
    "narrowing",
    "timeline",
    "plots",
    "moves",
    "page",
    "start",
)


def render(analysis: Analysis, mark: str = "") -> str:
    """Return the HTML page, of at most `MOST_BYTES`. Names from the trace are escaped.

    `mark` identifies the trace in the page (see `files.mark_of`).
    """
    analysis = mean_step(analysis)
    drawn = charts(analysis)
    packed = _packed(drawn)
    for row_limit in ROW_LIMITS:
        text = _page(analysis, drawn, packed, table_views(analysis, row_limit), mark)
        if len(text.encode()) <= MOST_BYTES:
            break
    return text


def _page(analysis: Analysis, drawn: Charts, packed: dict[str, str], tables: dict[str, TableView], mark: str) -> str:
    planned, others = cards.cards(analysis)
    drawn_bars, gains = plans.bars(analysis), measured_gains(analysis)
    return page(
        "report",
        _title(analysis),
        mark=mark,
        styles=("plan", "charts"),
        scripts=_SCRIPTS,
        inline=(plotly_source(),),
        analysis=analysis,
        of_steps=over_steps(analysis),
        version=analysis.source.capture.version if analysis.source.capture else "",
        headline=headline(analysis),
        badge=analysis.source.kind,
        bounds=Shares(analysis.bound.ranked()),
        key_figures=facts.key_figures(analysis),
        planned=planned,
        others=others,
        steps_of_plan=len(analysis.plan),
        ladder=_ladder(plans.planned(analysis), gains),
        rejected=_rejected(analysis),
        bars=drawn_bars,
        longest=plans.longest_us(drawn_bars),
        verified=measured_blocks(analysis.verified) if analysis.verified else [],
        scale=_scale(analysis),
        tables=tables,
        provenance=facts.provenance(analysis),
        origins=facts.origins(analysis),
        dropped=facts.dropped(analysis, tables.values(), drawn.notes.values()),
        command=facts.command(analysis),
        **_charts(drawn),
        **packed,
    )


def _charts(drawn: Charts) -> dict[str, Any]:
    roofs = drawn.specs.get("roofline", {"kinds": {}})
    line = drawn.specs.get("timeline", {"steps": [], "shown": 0})
    return {
        "notes": drawn.notes,
        "phases": drawn.specs.get("icicle", {"phases": []})["phases"],
        "roofline_kinds": [(kind, label) for kind, label in KINDS.items() if kind in roofs["kinds"]],
        "moves": {key: each["label"] for key, each in roofs.get("moves", {}).items()},
        "symbols": drawn.symbols,
        "lanes": drawn.lanes,
        "steps": [each["title"] for each in line["steps"]],
        "shown_step": line["shown"],
    }


def _packed(drawn: Charts) -> dict[str, str]:
    plots = drawn.specs.keys() - {"icicle"}
    return {"figures": packed_json(drawn.specs), "plotly": packed_plotly() if plots else ""}


def _ladder(steps: Sequence[PlanStep], gains: Mapping[str, MeasuredGain]) -> Table:
    """Return the steps of the plan, with what was measured of each and all before it."""
    names = [step.name for step in steps]
    known = [of_steps(gains, names[: at + 1]) for at in range(len(names))]
    rows: list[Row] = [
        (
            Cell(f"{number}. {step.title}{' (throughput)' * step.throughput}", href=f"#advice-{step.id}"),
            speedup(step.speedup),
            Cell(speedup(step.cumulative) if step.cumulative else ABSENT, "strong"),
            *([measured(gain.measured) if gain and gain.measured else ABSENT] if any(known) else []),
            f"{duration(step.latency_us.low)} to {duration(step.latency_us.high)}",
            ABSENT if step.memory_bytes is None else quantity(step.memory_bytes, "B"),
        )
        for number, (step, gain) in enumerate(zip(steps, known, strict=True), 1)
    ]
    was = [">measured"] if any(known) else []
    return Table(("in this order", ">adds", ">together", *was, ">a step then takes", ">memory then"), rows)


def _rejected(analysis: Analysis) -> Table:
    rows = [
        (each.title, speedup(each.speedup) if each.speedup else ABSENT, why(each))
        for each in analysis.considered
        if not each.recommended
    ]
    return Table(("optimization", ">predicted", "why not"), rows)


def _scale(analysis: Analysis) -> float:
    """Return the end of the axis of speed-ups."""
    gains = [gain.measured for gain in measured_gains(analysis).values() if gain.measured]
    alone = [advice.speedup for advice in analysis.recommendations]
    added = [step.speedup for step in analysis.plan]
    return max((gain.high for gain in (*gains, *alone, *added)), default=1.0) * 1.05


def _title(analysis: Analysis) -> str:
    capture = analysis.source.capture
    parts = [model(capture.model), capture.workload] if capture else []
    return " · ".join(printable(part) for part in (*parts, device(analysis.source)) if part) or "trace"
