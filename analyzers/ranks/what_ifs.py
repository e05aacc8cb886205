"""Simulates the gain of a job from changes: fixed ranks and links, balanced work, other communication, and none."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.cost import GPU, Message, hardware
from tracekit.analyzers.predict import ADAPTER_GBS, HOP_NS, SUSTAINED, message_ns
from tracekit.analyzers.ranks import transfer_changes
from tracekit.analyzers.ranks.aligned import AlignedRanks
from tracekit.analyzers.ranks.causes import MORE
from tracekit.analyzers.ranks.job_tables import hosts_of
from tracekit.analyzers.ranks.result import WhatIf
from tracekit.analyzers.ranks.simulate import step_times, with_transfers
from tracekit.analyzers.ranks.stragglers import Costs
from tracekit.analyzers.ranks.transfer_changes import ACCUMULATED

Floats = npt.NDArray[np.float64]


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


def within_hosts(
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
    return (within + (_between(size / spread.inside, spread.hosts) if kind == "reduce-scatter" else 0.0)) / now


def _between(size: float, hosts: int) -> float:
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
        times["rebalance"] = _total(step_times(job.program.with_less(_beyond_mean(job), on_device=True)))
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
        "larger-buckets": transfer_changes.in_larger_buckets(collectives, job.parallelisms),
        "accumulate": transfer_changes.accumulated(collectives, job.parallelisms),
        "keep-weights": transfer_changes.weights_kept(collectives, of_collective, job.parallelisms),
        "shard-within-hosts": within_hosts(collectives, job.parallelisms, _spreads(job), _gpu(job)),
        "faster-links": transfer_changes.over_faster_links(collectives),
        "overlap-last": transfer_changes.last_overlapped(collectives),
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


def _beyond_mean(job: AlignedRanks) -> Floats:
    """Return the computation of each rank and step beyond the mean over the ranks."""
    compute = job.own.parts["compute"]
    return compute - compute.mean(axis=0)
