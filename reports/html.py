"""The HTML report of an analysis: one page that needs no other file and no network."""

from functools import cache
from typing import Any

import jinja2

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.results import Analysis
from tracekit.reports import cards, embed, facts, numbers, origins
from tracekit.reports.charts import Charts, charts
from tracekit.reports.figures.roofline import KINDS
from tracekit.reports.headline import headline
from tracekit.reports.measured_gains import measured_gains, of_steps
from tracekit.reports.names import device, in_sentence, model, printable
from tracekit.reports.page_tables import table_views
from tracekit.reports.sentences import why
from tracekit.reports.untrusted import printable_lines
from tracekit.reports.views import ROW_LIMIT, TableView

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
    "plots",
    "moves",
    "page",
    "start",
)
_STYLES = ("tokens", "page", "plan", "charts", "tables", "paper")


def render(analysis: Analysis, mark: str = "") -> str:
    """Return the HTML page, of at most `MOST_BYTES`. Names from the trace are escaped.

    `mark` identifies the trace in the page (see `replacing.mark_of`).
    """
    drawn = charts(analysis)
    embedded = _embedded(drawn)
    for row_limit in ROW_LIMITS:
        page = _page(analysis, drawn, embedded, table_views(analysis, row_limit), mark)
        if len(page.encode()) <= MOST_BYTES:
            break
    return page


def _page(analysis: Analysis, drawn: Charts, embedded: dict[str, str], tables: dict[str, TableView], mark: str) -> str:
    planned, others = cards.cards(analysis)
    return environment().get_template("report.html.j2").render(
        analysis=analysis,
        of=mark,
        title=_title(analysis),
        version=analysis.source.capture.version if analysis.source.capture else "",
        headline=headline(analysis),
        badge=analysis.source.kind,
        mark="modelled" if analysis.source.kind == "modelled" else "",
        bounds=analysis.bound.ranked(),
        key_figures=facts.key_figures(analysis),
        planned=planned,
        others=others,
        ladder=analysis.plan,
        ladder_measured=_ladder_measured(analysis),
        gains=measured_gains(analysis),
        scale=_scale(analysis),
        tables=tables,
        provenance=facts.provenance(analysis),
        origins=origins.origins(analysis),
        dropped=origins.dropped(analysis, tables.values(), drawn.notes.values()),
        command=origins.command(analysis),
        **_charts(drawn),
        **embedded,
    )  # fmt: skip


def _charts(drawn: Charts) -> dict[str, Any]:
    roofs = drawn.specs.get("roofline", {"kinds": {}})
    return {
        "notes": drawn.notes,
        "phases": drawn.specs.get("icicle", {"phases": []})["phases"],
        "roofline_kinds": [(kind, label) for kind, label in KINDS.items() if kind in roofs["kinds"]],
        "moves": {key: each["label"] for key, each in roofs.get("moves", {}).items()},
        "symbols": drawn.symbols,
        "lanes": drawn.lanes,
    }


def _embedded(drawn: Charts) -> dict[str, str]:
    theme = embed.asset("theme.js")
    script = "\n".join(embed.asset(f"{name}.js") for name in _SCRIPTS)
    return {
        "figures": embed.packed_json(drawn.specs),
        "plotly": embed.packed_plotly() if drawn.specs.keys() - {"icicle"} else "",
        "policy": embed.content_security_policy(theme, script, embed.plotly_source()),
        "theme_script": theme,
        "script": script,
        "style": "\n".join(embed.asset(f"{name}.css") for name in _STYLES),
    }


def _ladder_measured(analysis: Analysis) -> dict[int, Interval]:
    """Return the measured cumulative speed-ups of the plan's first steps, by the index of the last of these steps."""
    gains, names = measured_gains(analysis), [step.name for step in analysis.plan]
    gain_at = {at: of_steps(gains, names[: at + 1]) for at in range(len(names))}
    return {at: gain.measured for at, gain in gain_at.items() if gain and gain.measured}


def _scale(analysis: Analysis) -> float:
    """Return the end of the axis of speed-ups."""
    gains = [gain.measured for gain in measured_gains(analysis).values() if gain.measured]
    alone = [advice.speedup for advice in analysis.recommendations]
    added = [step.speedup for step in analysis.plan]
    return max((gain.high for gain in (*gains, *alone, *added)), default=1.0) * 1.05


def _along(speedup: float, scale: float) -> float:
    """Return the position of a speed-up on the axis from 1 to `scale`, as a fraction."""
    return round(min(max((speedup - 1) / (scale - 1), 0.0), 1.0), 4) if scale > 1 else 0.0


def _title(analysis: Analysis) -> str:
    capture = analysis.source.capture
    parts = [model(capture.model), capture.workload] if capture else []
    return " · ".join(printable(part) for part in (*parts, device(analysis.source)) if part) or "trace"


def _printable_value(value: Any) -> Any:
    """Replace control characters in a text; markup is unchanged."""
    return printable_lines(value) if type(value) is str else value


@cache
def environment() -> jinja2.Environment:
    """Return the Jinja environment, in which every value is escaped and made printable. It compiles a template once."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tracekit.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable_value,
    )
    filters: dict[str, Any] = {
        "percent": numbers.percent,
        "speedup": numbers.speedup,
        "times": numbers.times,
        "measured": numbers.measured,
        "duration": numbers.duration,
        "size": lambda value: numbers.quantity(value, "B"),
        "printable": printable,
        "in_sentence": in_sentence,
        "why": why,
        "along": _along,
        "unbroken": lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%"),
    }
    environment.filters.update(filters)
    return environment
