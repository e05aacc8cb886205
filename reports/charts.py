"""The charts of the page, with their notes and legends."""

from dataclasses import dataclass

from tracekit.analyzers.idle_tables import CAUSES
from tracekit.analyzers.results import Analysis
from tracekit.reports import numbers
from tracekit.reports.figures.icicle import icicle
from tracekit.reports.figures.roofline import placed, roofline
from tracekit.reports.figures.step_timeline import timeline
from tracekit.reports.figures.style import BOUND_NAMES, GLYPHS, Figure, bound_title

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
