"""Writes the sentences about a job of ranks."""

import math
from typing import Any

from tracekit.analyzers.core import Interval
from tracekit.analyzers.ranks import ACCUMULATED, IN_TIME, LARGER_BUCKETS, LEAST_COST, Job, Reason, Straggler, WhatIf
from tracekit.analyzers.results import CAUSE_MEANINGS
from tracekit.reports.words import ABSENT, duration, percent, printable, quantity, rows_of, shortened

_FAMILIES = {"gemm": "GEMMs", "conv": "convolutions", "convolution": "convolutions", "attention": "attention kernels"}
_LEAST_GAIN = 1.01
_MOST_ADVICE = 4
_NAME = 48
_MUCH = 0.1
"""Waits are mentioned in a sentence if they exceed this fraction of a step."""
_MOST_RANKS = 4
_KEPT = 0.1
"""If fewer bytes than this fraction of those of the forward pass are gathered in the backward pass, the weights were
kept."""


def time(nanoseconds: float) -> str:
    return duration(nanoseconds / 1e3)


def interval(share: Interval) -> str:
    """Format an interval of shares: 11.8 % [10.9–12.6]."""
    if share.low == share.high:
        return percent(share.expected)
    return f"{percent(share.expected)} [{100 * share.low:.1f}–{100 * share.high:.1f}]"


def opening(job: Job) -> str:
    """Return the numbers of ranks and hosts, the error of their clocks, and the time of a step."""
    ranks = (
        f"{len(job.ranks):,} ranks"
        if len(job.ranks) == job.world_size
        else f"{len(job.ranks):,} of {job.world_size:,} ranks"
    )
    hosts = f", {job.hosts:,} host{'s' if job.hosts > 1 else ''}" if job.hosts else ""
    clocks = "" if math.isnan(job.clock_error_ns) else f"; clocks ±{time(job.clock_error_ns)}"
    plural = "" if job.steps == 1 else "s"
    return f"{ranks}{hosts}{clocks}; {job.steps:,} step{plural} of {time(job.step_ns)}"


def named(straggler: Straggler) -> str:
    """Return which rank delays the job, or would delay it, what that costs, and why."""
    rank = f"Rank {straggler.rank}" + (f" (host {straggler.host})" if straggler.host >= 0 else "")
    why, cost = because(straggler.reason), straggler.cost_share
    if cost.expected < LEAST_COST:
        what = "has more work than its peers" if straggler.reason.cause == "more work" else "is later than its peers"
        return f"{rank} {what}; nobody waits for it now ({interval(cost)} of a step): {why}."
    return f"{rank} costs {interval(cost)} of a step: {why}."


def because(reason: Reason) -> str:
    more = time(reason.excess_ns)
    if reason.cause == "slower device":
        same = "calls (shapes are not recorded)" if math.isnan(reason.flops_ratio) else "calls and shapes"
        return f"its {_what(reason)} run {reason.time_ratio:.2f} times as long, with the same {same}"
    if reason.cause == "more work":
        return f"it computes {more} longer per step, on more work: {_more(reason)}"
    if reason.cause == "data loading":
        return f"it waits {more} longer per step for its data"
    if reason.cause == "garbage collection":
        return f"Python collects garbage for {more} more per step than on other ranks"
    if reason.cause == "copies":
        return f"its copies between host and device take {more} longer per step"
    meaning = CAUSE_MEANINGS.get(reason.detail, "")
    return f"its host is {more} later per step than others'" + (f" ({reason.detail}: {meaning})" if meaning else "")


def _what(reason: Reason) -> str:
    kind = _FAMILIES.get(reason.family, f"{reason.family} kernels" if reason.family else "kernels")
    return f"{reason.phase} {kind}".strip()


def _more(reason: Reason) -> str:
    where = " in ".join(printable(shortened(name, _NAME)) for name in (reason.op, reason.layer) if name) or "its ops"
    if reason.detail == "calls":
        return f"{reason.calls_ratio:.2f} times the calls, most of all {where}"
    if reason.detail == "flops":
        larger = "" if reason.calls_ratio > 1 else " (larger shapes)"
        return f"{reason.flops_ratio:.2f} times the FLOPs{larger}, most of all {where}"
    return f"larger shapes, most of all {where}"


def communication(job: Job) -> str:
    """Return the time of collectives per step: waiting and transfer."""
    total = job.ranks["imposed_ns"].sum()
    parts = []
    for each in job.stragglers[:2]:
        imposed = float(job.ranks.loc[job.ranks["rank"] == each.rank, "imposed_ns"].sum())
        parts.append(f"{percent(imposed / total)} of it for rank {each.rank}" if total else "")
    whom = f" ({', '.join(part for part in parts if part)})" if parts else ""
    roof = "" if math.isnan(job.roof_fraction) else f" ({percent(job.roof_fraction)} of the link's roof)"
    took = f"Collectives take {time(job.communication_ns)} of a rank's step"
    return f"{took}: {time(job.waiting_ns)} waiting for other ranks{whom}, {time(job.transfer_ns)} transfer{roof}."


def explained(job: Job) -> list[str]:
    """Return the sentences about links, collectives and parallelism."""
    return [link(job), communication(job), slower_hosts(job), said_of_turns(job), *parallelisms(job)]


def slower_hosts(job: Job) -> str:
    """Return the sentence about hosts that are slower everywhere; "" if there are none."""
    if not job.slower_hosts:
        return ""
    hosts = ", ".join(f"rank {rank}'s takes {pace:.2f} times as long" for rank, pace in job.slower_hosts)
    return (
        f"Hosts differ: between the same calls {hosts} as its peers'. Processes on one machine may differ this much "
        "without a fault, so no rank is named for it: few ranks do not show the usual difference."
    )


def said_of_turns(job: Job) -> str:
    """Return the sentence about waits for a rank that differs between steps; "" if waits are short, or mostly for named
    ranks."""
    imposed = job.by_step.pivot_table("imposed_ns", "step", "rank", aggfunc="sum")
    total, named = float(imposed.to_numpy().sum()), [each.rank for each in job.stragglers]
    if job.waiting_ns < _MUCH * job.step_ns or not total or imposed[named].to_numpy().sum() > total / 2:
        return ""
    most = imposed.idxmax(axis=1).value_counts()
    ranks = ", ".join(f"rank {rank} in {count}" for rank, count in most.head(_MOST_RANKS).items())
    if len(most) < 2:
        return ""
    return f"The rank that the others wait for longest changes: {ranks} of {len(imposed)} steps."


def parallelisms(job: Job) -> list[str]:
    """Return one line for each of FSDP, pipeline and expert parallelism, from the group that waits longest."""
    rows = rows_of(job.groups.sort_values("wait_ns", ascending=False, kind="stable"))
    first = {row.parallelism: row for row in reversed(rows)}
    return [line for kind in ("fsdp", "pipeline", "expert") if kind in first and (line := _shows(first[kind], job))]


def _shows(row: Any, job: Job) -> str:
    if row.parallelism == "fsdp":
        again = "" if math.isnan(row.regathered) else f"; weights are gathered {_again(row.regathered)}"
        return f"FSDP: {percent(row.overlap)} of its communication overlaps with computation{again}."
    if math.isnan(row.imbalance):
        return ""
    if row.parallelism == "expert":
        return f"Experts: the fullest rank gets {row.imbalance:.2f} times the mean."
    bubbles = percent(row.wait_ns / job.step_ns) if job.step_ns else ABSENT
    return f"Pipeline: stages wait {bubbles} of a step; the longest takes {row.imbalance:.2f} times the mean."


def _again(regathered: float) -> str:
    if regathered < _KEPT:
        return "once (reshard_after_forward=False)"
    return "again in the backward pass (reshard_after_forward=True)"


def headlines(job: Job) -> list[str]:
    """Return the answer: which calls ranks lack, and which ranks delay the others."""
    lacking = [str(row.message) for row in rows_of(job.problems) if row.code == "collective-missing"]
    return [*lacking, *map(named, job.stragglers)] or [none_named(job)]


def none_named(job: Job) -> str:
    """Return the sentence for a job in which no rank is named."""
    if "clocks-not-aligned" in set(job.problems["code"]):
        return "No rank is named: their clocks cannot be compared."
    return "No rank delays the others significantly."


def link(job: Job) -> str:
    """Return the sentence about the slow link; "" without one."""
    slow = job.slow_link
    if slow is None:
        return ""
    names = ", ".join(printable(str(job.groups["name"].iloc[at])) for at in slow.groups[:3] if at < len(job.groups))
    whose = "a link" if slow.rank is None else f"the link of rank {job.ranks['rank'].iloc[slow.rank]}"
    return f"Transfers of group {names} take {slow.ratio:.2f} times as long as in groups like it: {whose} is slow."


def gain(what: WhatIf) -> str:
    """Format a gain: fix rank 37, 1.13×."""
    words = {
        "mend": f"fix rank {what.rank}",
        "mend-link": "fix the slow link",
        "larger-buckets": f"gradient buckets of {LARGER_BUCKETS} times the size (bucket_cap_mb)",
        IN_TIME: "hosts that are never late (data loading, CUDA graphs, torch.compile)",
        "accumulate": f"gradients accumulated over {ACCUMULATED} steps (no_sync; a larger batch)",
        "keep-weights": "weights kept for the backward pass (reshard_after_forward=False)",
        "shard-within-hosts": "weights sharded within each host and replicated over the hosts",
        "rebalance": "computation divided evenly among the ranks",
        "faster-links": "links of twice the bandwidth",
        "overlap-last": "overlap the last collective of a step",
        "free-transfers": "transfers that take no time",
    }
    limit = "at most " if what.change == IN_TIME else ""
    return f"{words[what.change]}, {limit}{what.speedup:.2f}×"


def advice(job: Job) -> list[WhatIf]:
    """Return the worthwhile changes, without upper limits."""
    able = [each for each in job.what_ifs if each.change != "free-transfers" and each.speedup >= _LEAST_GAIN]
    return able[:_MOST_ADVICE]


def rate(value: float) -> str:
    """Format a bandwidth: 12.3 GB/s."""
    return quantity(value, "B/s")
