"""Simulates the gain of a job from changes: fixed ranks and links, balanced work, other communication, and none."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd

from tracekit.analyzers.core import Floats
from tracekit.analyzers.cost import GPU, Message, hardware
from tracekit.analyzers.predict import ADAPTER_GBS, HOP_NS, SUSTAINED, message_ns
from tracekit.analyzers.ranks.aligned import AlignedRanks
from tracekit.analyzers.ranks.causes import MORE
from tracekit.analyzers.ranks.job_tables import hosts_of
from tracekit.analyzers.ranks.result import WhatIf
from tracekit.analyzers.ranks.simulate import step_times, with_transfers
from tracekit.analyzers.ranks.stragglers import Costs

Shard = Literal["all-gather", "reduce-scatter"]
_SHARDS: tuple[Shard, ...] = get_args(Shard)


@dataclass(frozen=True)
class Spread:
    """The ranks of a group, and the number of hosts that they are on; 0: unknown."""

    ranks: int
    hosts: int

    @property
    def inside(self) -> int:
        """Ranks on each host; 0 if these are unequal, or the group is on one host."""
        return self.ranks // self.hosts if self.hosts > 1 and self.ranks % self.hosts == 0 else 0


def factors_within_hosts(
    collectives: pd.DataFrame, kinds: Mapping[int, str], spreads: Mapping[int, Spread], gpu: GPU | None
) -> Floats | None:
    """Return the factors; None without a known GPU or an FSDP group over several hosts."""
    factors = np.ones(len(collectives))
    changed = False
    for kind in _SHARDS if gpu else ():
        of_kind = collectives[(collectives["kind"] == kind) & (collectives["bytes"] > 0)]
        for number, rows in of_kind.groupby("group"):
            spread = spreads[int(str(number))]
            if gpu and kinds.get(int(str(number))) == "fsdp" and spread.inside > 1:
                sizes, at = np.unique(rows["bytes"].to_numpy(), return_inverse=True)
                factors[rows.index] = np.array([_factor(kind, int(size), spread, gpu) for size in sizes])[at]
                changed = True
    return factors if changed else None


def _factor(kind: Shard, size: int, spread: Spread, gpu: GPU) -> float:
    now = message_ns(Message(kind, size, spread.ranks), gpu, "ib")
    within = message_ns(Message(kind, size, spread.inside), gpu, "nvlink")
    return (
        within + (_all_reduce_between_hosts(size / spread.inside, spread.hosts) if kind == "reduce-scatter" else 0.0)
    ) / now


def _all_reduce_between_hosts(size: float, hosts: int) -> float:
    """Return the time of an all-reduce of a shard between hosts, in ns: each GPU has an adapter."""
    return 2 * (hosts - 1) / hosts * size / (ADAPTER_GBS * SUSTAINED) + 2 * np.ceil(np.log2(hosts)) * HOP_NS


IN_TIME = "launch-in-time"
_LIMITS = {IN_TIME: 1, "free-transfers": 2}
"""Gains that are upper limits come last."""
_UNEVEN = ("pipeline", "expert")
"""Parallelisms that divide the work, and may divide it unevenly."""


def what_ifs(job: AlignedRanks, cost: Costs, collectives: pd.DataFrame, faster: Floats | None) -> tuple[WhatIf, ...]:
    """Return the gains, largest first, and then the limits: hosts that are never late, and free transfers.

    `faster` is the factor by which a fixed link changes each collective's transfer; None without a slow link.
    """
    gains = [WhatIf("mend", job.numbers[each.rank], 1 / max(1 - each.share.expected, 1e-3)) for each in cost.named]
    now = float(cost.step_ns.sum())
    times = {IN_TIME: _total(step_times(job.program.never_late()))}
    if _divides_unevenly(job):
        times["rebalance"] = _total(step_times(job.program.with_less(_excess_over_mean(job), on_device=True)))
    for change, factors in _factors(job, collectives, faster).items():
        if factors is not None:
            times[change] = _with_factors(job, collectives, factors)
    if "accumulate" in times:  # one step in ACCUMULATED still reduces the gradients
        times["accumulate"] = (now + (ACCUMULATED - 1) * times["accumulate"]) / ACCUMULATED
    gains += [WhatIf(change, -1, now / max(time, 1.0)) for change, time in times.items()]
    return tuple(sorted(gains, key=lambda each: (_LIMITS.get(each.change, 0), -each.speedup)))


def _factors(job: AlignedRanks, collectives: pd.DataFrame, faster: Floats | None) -> dict[str, Floats | None]:
    """Return, for each change of communication, the factors on the transfers; None if it does not apply."""
    phases = job.calls.groupby("call")["phase"].first().astype(str)
    of_collective = pd.Series(phases.reindex(collectives["call"]).to_numpy(), index=collectives.index)
    return {
        "mend-link": faster,
        "larger-buckets": factors_in_larger_buckets(collectives, job.parallelisms),
        "accumulate": accumulated(collectives, job.parallelisms),
        "keep-weights": weights_kept(collectives, of_collective, job.parallelisms),
        "shard-within-hosts": factors_within_hosts(collectives, job.parallelisms, _spreads(job), _gpu(job)),
        "faster-links": factors_over_faster_links(collectives),
        "overlap-last": last_overlapped(collectives),
        "free-transfers": np.zeros(len(collectives)),
    }


def _spreads(job: AlignedRanks) -> dict[int, Spread]:
    hosts = np.asarray(job.hosts)
    groups = enumerate(job.matched.groups)
    return {number: Spread(len(group.ranks), hosts_of(group, hosts)) for number, group in groups}


def _gpu(job: AlignedRanks) -> GPU | None:
    return hardware.find(job.ranks[0].gpu) if job.ranks[0].gpu else None


def _with_factors(job: AlignedRanks, collectives: pd.DataFrame, factors: Floats) -> float:
    """Return the time of the steps if the transfer of each collective takes its factor times as long."""
    of_call = np.ones(len(job.program.transfer))
    of_call[collectives["call"].to_numpy()] = factors
    return _total(with_transfers(job.program, of_call))


def _total(steps: Floats) -> float:
    return float(steps.sum())


def _divides_unevenly(job: AlignedRanks) -> bool:
    """Return whether the ranks share work that can be divided differently: stages, experts, or batches of unequal
    FLOPs."""
    flops = job.own.counts["flops"]
    uneven = flops.max(axis=0) > MORE * flops.mean(axis=0)
    return len(flops) > 1 and (bool(uneven.any()) or any(kind in _UNEVEN for kind in job.parallelisms.values()))


def _excess_over_mean(job: AlignedRanks) -> Floats:
    """Return the computation of each rank and step beyond the mean over the ranks."""
    compute = job.own.parts["compute"]
    return compute - compute.mean(axis=0)


LARGER_BUCKETS = 4
"""Simulated size of gradient buckets, relative to that of the job."""
ACCUMULATED = 4
"""Simulated number of steps whose gradients are accumulated before they are reduced."""
_REDUCTIONS = ("all-reduce", "reduce-scatter")
Kinds = Mapping[int, str]


def factors_in_larger_buckets(collectives: pd.DataFrame, kinds: Kinds) -> Floats | None:
    """Return the factors if LARGER_BUCKETS consecutive reductions of gradients in a step become one.

    The last of them carries the bytes of all. None without a data-parallel group with as many calls per step.
    """
    factors, changed = np.ones(len(collectives)), False
    for rows in _collectives_of_groups(collectives, kinds, "data", ("all-reduce",)):
        least = float(rows["transfer_ns"].min())
        for _, step in rows.groupby("step"):
            changed |= len(step) >= LARGER_BUCKETS
            factors[step.index] = merged(step["transfer_ns"].to_numpy(float), LARGER_BUCKETS, least)
    return factors if changed else None


def merged(transfer: Floats, times: int, least: float) -> Floats:
    """Return the factors of the transfers of one group and step, in order."""
    bucket = np.arange(len(transfer)) // times
    last = np.diff(bucket, append=bucket[-1] + 1) > 0
    total, size = (np.bincount(bucket, weights) for weights in (transfer, np.ones(len(transfer))))
    together = total - (size - 1) * least
    return np.where(last, together[bucket] / np.maximum(transfer, 1.0), 0.0)


def accumulated(collectives: pd.DataFrame, kinds: Kinds) -> Floats | None:
    """Return the factors in a step that only accumulates its gradients; None if no group reduces gradients."""
    return _free(
        [*_collectives_of_groups(collectives, kinds, "data"), *_collectives_of_groups(collectives, kinds, "fsdp")],
        collectives,
    )


def weights_kept(collectives: pd.DataFrame, phases: pd.Series, kinds: Kinds) -> Floats | None:
    """Return the factors if weights are not gathered again in the backward pass; None if they already are not.

    `phases` are those of the collectives.
    """
    gathers = _collectives_of_groups(collectives, kinds, "fsdp", ("all-gather",))
    return _free([rows[phases[rows.index] == "backward"] for rows in gathers], collectives)


def factors_over_faster_links(collectives: pd.DataFrame) -> Floats:
    """Return the factors over links with twice the bandwidth."""
    transfer = collectives["transfer_ns"]
    least = transfer.groupby([collectives["group"], collectives["kind"].astype(str)]).transform("min")
    faster = least + (transfer - least) / 2
    return np.asarray(faster / np.maximum(transfer, 1.0), dtype=float)


def last_overlapped(collectives: pd.DataFrame) -> Floats:
    """Return the factors if the last collective of each step takes no time."""
    last = collectives.groupby("step")["start_ns"].transform("max") == collectives["start_ns"]
    return np.where(last & (collectives["step"] >= 0), 0.0, 1.0)


def _collectives_of_groups(
    collectives: pd.DataFrame, kinds: Kinds, parallelism: str, of: tuple[str, ...] = _REDUCTIONS
) -> list[pd.DataFrame]:
    """Return, for each group of a parallelism, its collectives of some kinds inside steps."""
    inside = collectives[collectives["kind"].isin(of) & (collectives["step"] >= 0)]
    return [rows for number, rows in inside.groupby("group") if kinds.get(int(str(number))) == parallelism]


def _free(parts: list[pd.DataFrame], collectives: pd.DataFrame) -> Floats | None:
    factors = np.ones(len(collectives))
    for rows in parts:
        factors[rows.index] = 0.0
    return factors if (factors == 0).any() else None
