"""Writes a job of ranks as one page that needs no other file and no network."""

from collections.abc import Mapping
from typing import Any

from tracekit.analyzers.ranks.result import Job
from tracekit.reports import embed
from tracekit.reports.html import environment
from tracekit.reports.names import printable
from tracekit.reports.numbers import ABSENT, percent, quantity
from tracekit.reports.ranks import drawings, words
from tracekit.reports.table_rows import rows_of

MOST_RANKS, MOST_GROUPS = 256, 64
_STYLES = ("tokens", "page", "tables", "ranks", "paper")
_HOW = (
    "Calls of a collective are matched by process group and sequence number or, without these, by order.",
    "Clocks are aligned on the ends of collectives, which no rank leaves before all have arrived. The error is the "
    "distance within which 90 % of the ends lie from that of their collective.",
    "Own time is the time that the rank would take without waiting for others: its device's work without exposed "
    "communication, and its host's time without waits for the device.",
    "A rank's wait at a collective lasts until the last one arrives; the rest is transfer. The wait between two "
    "arrivals is attributed in equal parts to the ranks that are still missing; these parts sum to all waits.",
    "A rank's cost is the time that the simulated job saves if the rank takes the own time of its typical peer. "
    "Intervals are 80 % intervals of the mean over the steps.",
    "A rank is named if the excess of its own time, or of one class of it, is significant over the steps, exceeds the "
    "spread between ranks, and costs 2 %; and if the FLOPs or bytes that its ops have beyond its peers' take 2 % of "
    "their computation. Among two or three ranks, a host must be later by a quarter of its peers' own time, "
    "and half of that at one place in a step.",
)


def render(
    job: Job, mark: str = "", commands: Mapping[int, str] | None = None, reports: Mapping[int, str] | None = None
) -> str:
    """Return the HTML page. Names from the traces are escaped.

    `reports` are links to the ranks' own reports, `commands` write them.
    """
    theme, script = embed.asset("theme.js"), embed.asset("dom.js") + "\n" + embed.asset("page.js")
    return environment().get_template("ranks.html.j2").render(
        of=mark,
        title=printable(words.opening(job)),
        said=[printable(each) for each in words.headlines(job)],
        lines=[line for line in words.explained(job) if line],
        advice=[words.gain(each) for each in words.advice(job)],
        limits=[words.gain(each) for each in job.what_ifs if each.change == "free-transfers"],
        figures=_figures(job),
        problems=[row for row in rows_of(job.problems) if row.severity != "info"],
        heatmap=drawings.heatmap(job),
        histogram=drawings.histogram(job),
        timelines=drawings.timelines(job),
        path=drawings.path_parts(job),
        ranks=_ranks(job, commands or {}, reports or {}),
        ranks_left=max(0, len(job.ranks) - MOST_RANKS),
        groups=_groups(job),
        matrix=drawings.group_matrix(job),
        how=_HOW,
        mark="",
        notes={},
        policy=embed.content_security_policy(theme, script),
        theme_script=theme,
        script=script,
        style="\n".join(embed.asset(f"{name}.css") for name in _STYLES),
    )  # fmt: skip


def _figures(job: Job) -> list[tuple[str, str]]:
    roof = "" if job.roof_fraction != job.roof_fraction else f", {percent(job.roof_fraction)} of the roof"
    return [
        ("step", words.time(job.step_ns)),
        ("waiting for other ranks", words.time(job.waiting_ns)),
        (f"transfer{roof}", words.time(job.transfer_ns)),
        ("clocks agree within", words.time(job.clock_error_ns)),
        ("simulated of the recorded time", percent(job.simulated_share)),
    ]


def _ranks(job: Job, commands: Mapping[int, str], reports: Mapping[int, str]) -> list[dict[str, Any]]:
    named = {each.rank for each in job.stragglers}
    order = job.ranks.sort_values(["cost_share", "imposed_ns"], ascending=False, kind="stable").head(MOST_RANKS)
    times = ("wall", "own", "compute", "exposed_communication", "exposed_copy", "idle", "waiting", "imposed")
    return [
        {
            "rank": row.rank,
            "host": row.host if row.host >= 0 else ABSENT,
            "named": row.rank in named,
            "times": [words.time(getattr(row, f"{name}_ns")) for name in times],
            "overlap": percent(row.overlap),
            "cost": percent(max(0.0, row.cost_share)),
            "offset": words.time(row.clock_offset_ns),
            "command": commands.get(row.rank, ""),
            "report": reports.get(row.rank, ""),
        }
        for row in rows_of(order)
    ]


def _groups(job: Job) -> list[dict[str, Any]]:
    longest = float(job.groups["wait_ns"].max()) if len(job.groups) else 1.0
    return [
        {
            "name": printable(row.name),
            "ranks": row.ranks,
            "size": f"{row.traced:,} of {row.size:,}" if row.traced < row.size else f"{row.size:,}",
            "parallelism": row.parallelism,
            "calls": f"{row.calls:,}",
            "bytes": quantity(row.bytes, "B"),
            "wait": words.time(row.wait_ns),
            "part": round(row.wait_ns / longest, 4) if longest else 0.0,
            "transfer": words.time(row.transfer_ns),
            "rate": words.rate(row.bus_bandwidth),
        }
        for row in rows_of(job.groups.sort_values("wait_ns", ascending=False, kind="stable").head(MOST_GROUPS))
    ]
