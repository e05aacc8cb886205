"""The report: one page that needs no other file and no network."""

from dataclasses import dataclass
from typing import Any

import jinja2

from analyzers.results import Analysis
from reports import embed, facts, numbers
from reports.figures.icicle import icicle
from reports.figures.roofline import placed, roofline
from reports.figures.style import Figure
from reports.figures.timeline import timeline
from reports.headline import headline
from reports.names import device, model, printable
from reports.tables import glossary, table_views


@dataclass(frozen=True)
class Figures:
    """Plotly figures by the id of their place in the page, with what to say below them."""

    specs: dict[str, Figure]
    notes: dict[str, str]


def render(analysis: Analysis) -> str:
    """The page. Names in the trace are text in it, never markup."""
    figures = _figures(analysis)
    theme, script = embed.asset("theme.js"), embed.asset("tables.js") + embed.asset("figures.js")
    return _environment().get_template("report.html.j2").render(
        analysis=analysis,
        title=_title(analysis),
        headline=headline(analysis),
        badge=analysis.source.kind,
        mark="modelled" if analysis.source.kind == "modelled" else "",
        device_label="GPU" if analysis.source.device == "gpu" else "CPU",
        bounds=analysis.bound.ranked(),
        key_figures=facts.key_figures(analysis),
        provenance=facts.provenance(analysis),
        how=facts.how(analysis),
        scale=_scale(analysis),
        tables=(tables := table_views(analysis)),
        glossary=glossary(tables),
        notes=figures.notes,
        figures=embed.packed_json(figures.specs),
        plotly=embed.packed_plotly() if figures.specs else "",
        policy=embed.content_security_policy(theme, script, embed.plotly_source()),
        theme_script=theme,
        script=script,
        style=embed.asset("report.css"),
    )  # fmt: skip


def _figures(analysis: Analysis) -> Figures:
    specs: dict[str, Figure] = {}
    notes: dict[str, str] = {}
    if analysis.timeline.busy_ns > 0:
        specs["icicle"], thin = icicle(analysis)
        notes["icicle"] = f"{thin:,} boxes too thin to see are left out." if thin else ""
    plot = roofline(analysis)
    if plot:
        specs["roofline"] = plot
        notes["roofline"] = _unplaced(analysis)
    lanes = timeline(analysis)
    if lanes:
        specs["timeline"], notes["timeline"] = lanes
    return Figures(specs, notes)


def _unplaced(analysis: Analysis) -> str:
    absent = analysis.kernels.drop(placed(analysis).index)
    if absent.empty:
        return ""
    share = numbers.percent(absent["share"].sum())
    count = f"{len(absent)} kernels" if len(absent) > 1 else "1 kernel"
    return f"Not on the plot: {count} of next to no arithmetic or time, {share} of the busy time."


def _scale(analysis: Analysis) -> float:
    """Where the axis of the predicted speed-ups ends."""
    return max((advice.speedup.high for advice in analysis.recommendations), default=1.0) * 1.05


def _title(analysis: Analysis) -> str:
    capture = analysis.source.capture
    parts = [model(capture.model), capture.workload] if capture else []
    return " · ".join(printable(part) for part in (*parts, device(analysis.source)) if part) or "trace"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "percent": numbers.percent,
        "speedup": numbers.speedup,
        "times": numbers.times,
        "duration": numbers.duration,
        "printable": printable,
        "unbroken": lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%"),
    }
    environment.filters.update(filters)
    return environment
