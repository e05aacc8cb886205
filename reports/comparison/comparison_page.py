"""A comparison as one page that needs no other file and no network."""

from typing import Any

from tracekit.analyzers.comparison.comparison import Comparison, Side
from tracekit.analyzers.idle_tables import CAUSES
from tracekit.reports import embed
from tracekit.reports.comparison.change_tables import table_views
from tracekit.reports.comparison.matched_rows import parts
from tracekit.reports.comparison.part_names import (
    IDLE_MEANINGS,
    OVERLAP_MEANING,
    change,
    settings,
    signed_percent,
    time,
)
from tracekit.reports.comparison.sentence import explained, reason
from tracekit.reports.html import environment
from tracekit.reports.names import printable
from tracekit.reports.numbers import duration, percent
from tracekit.reports.table_rows import rows_of

_SCRIPTS = ("dom", "folding", "tables", "tabs", "copying", "tips", "page", "compare")
_STYLES = ("tokens", "page", "tables", "compare", "paper")
_HOW = (
    "Times are for one step: means over all steps in each trace, and over the devices where there are several.",
    "The latency is the one timed without a profiler if both runs have it, else the mean step in the trace.",
    "Idle time is split by the causes of the gaps in the trace, scaled to the latency.",
    "Layers are matched from the roots down: by name and class, by name, the k-th of a class, then what is left in "
    "order; a wrapper that only one side has is skipped.",
    "Ops and kernels are matched by name, else by the layers that they spend their time in, else by their FLOPs.",
    "Times of work are the kernels' own durations. Concurrent kernels count in full; the row of their overlap "
    "subtracts what is counted more than once, so that the rows sum to the step.",
    "Rows that only one side has are marked as such.",
)


def render(comparison: Comparison, mark: str = "") -> str:
    """Return the HTML page. Names from the traces are escaped. `mark` identifies the two inputs."""
    theme = embed.asset("theme.js")
    script = "\n".join(embed.asset(f"{name}.js") for name in _SCRIPTS)
    return environment().get_template("compare.html.j2").render(
        of=mark,
        title=printable(f"{comparison.a.name} and {comparison.b.name}"),
        sentence=explained(comparison),
        runs=[_run(letter, side, comparison) for letter, side in (("A", comparison.a), ("B", comparison.b))],
        notes=comparison.notes,
        rows=_rows(comparison),
        total=_total(comparison),
        tables=table_views(comparison),
        how=_HOW,
        mark="",
        policy=embed.content_security_policy(theme, script),
        theme_script=theme,
        script=script,
        style="\n".join(embed.asset(f"{name}.css") for name in _STYLES),
    )  # fmt: skip


def _run(letter: str, side: Side, comparison: Comparison) -> dict[str, Any]:
    longest = max(comparison.a.latency_ns, comparison.b.latency_ns)
    spread = [duration(end / 1e3) for end in side.spread_ns or ()]
    busy = f"{duration(side.busy_ns / 1e3)} busy ({percent(min(1.0, side.busy_ns / side.latency_ns))})"
    return {
        "letter": letter,
        "name": printable(side.name),
        "kind": side.source.kind,
        "latency": time(side.latency_ns),
        "spread": f"{spread[0]} to {spread[1]}" if spread else "",
        "described": settings(side),
        "busy": f"{busy}, {side.kernels:,.0f} kernels per step",
        "whole": round(side.latency_ns / longest, 4),
        "strip": _strip(letter.lower(), comparison),
    }


def _strip(side: str, comparison: Comparison) -> list[tuple[str, float]]:
    """Return (CSS class, time in ns) of each part of the step, in the order of the table. Idle time has its cause's
    colour."""
    rows = [(row.kind, row.name, getattr(row, f"{side}_ns")) for row in rows_of(comparison.difference)]
    return [
        (f"gap-{name if name in CAUSES else 'unknown'}" if kind == "idle" else "", round(time_ns, 1))
        for kind, name, time_ns in rows
        if time_ns > 0
    ]


def _rows(comparison: Comparison) -> list[dict[str, Any]]:
    rows = parts(comparison)
    most = float(rows["change_ns"].abs().max()) or 1.0
    meanings = comparison.difference["name"].map({**IDLE_MEANINGS, "overlap": OVERLAP_MEANING}).fillna("")
    return [
        {
            "name": row.name,
            "idle": row.kind != "busy",
            "help": meanings[row.Index] if row.kind != "busy" else "",
            "a": time(row.a_ns),
            "b": time(row.b_ns),
            "change": change(row.change_ns),
            "part": round(row.change_ns / most, 4),
            "share": signed_percent(row.share),
            "kernels": f"{row.a_kernels:,.0f} → {row.b_kernels:,.0f}" if row.kind == "busy" else str(row.kind),
            "why": reason(row) if row.kind == "busy" else "",
        }
        for row in rows_of(rows)
    ]


def _total(comparison: Comparison) -> dict[str, str]:
    return {
        "a": time(comparison.a.latency_ns),
        "b": time(comparison.b.latency_ns),
        "change": change(comparison.change_ns),
        "share": signed_percent(1.0 if comparison.change_ns else 0.0),
        "kernels": f"{comparison.a.kernels:,.0f} → {comparison.b.kernels:,.0f}",
    }
