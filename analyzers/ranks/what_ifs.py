"""Simulates the gain of a job from changes: mended ranks and links, overlapped and free communication."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.ranks.aligned import AlignedRanks
from tracekit.analyzers.ranks.parallelism import parallelism
from tracekit.analyzers.ranks.result import WhatIf
from tracekit.analyzers.ranks.simulate import step_times, with_transfers
from tracekit.analyzers.ranks.stragglers import Costs

IN_TIME = "launch-in-time"
LARGER_BUCKETS = 4
"""Simulated size of gradient buckets, relative to that of the job."""
_LIMITS = {IN_TIME: 1, "free-transfers": 2}
"""Gains that are limits come last."""
Floats = npt.NDArray[np.float64]


def what_ifs(job: AlignedRanks, cost: Costs, collectives: pd.DataFrame, faster: Floats | None) -> tuple[WhatIf, ...]:
    """Return the gains, largest first, and then the limits: hosts that are never late, and free transfers.

    `faster` is the factor by which a mended link changes each collective's transfer; None without a slow link.
    """
    gains = [WhatIf("mend", job.numbers[each.rank], 1 / max(1 - each.share.expected, 1e-3)) for each in cost.named]
    total = float(cost.step_ns.sum())
    gains.append(WhatIf(IN_TIME, -1, total / max(float(step_times(job.program.never_late()).sum()), 1.0)))
    last = collectives.groupby("step")["start_ns"].transform("max") == collectives["start_ns"]
    overlapped = np.where(last & (collectives["step"] >= 0), 0.0, 1.0)
    free = np.zeros(len(collectives))
    larger = _in_larger_buckets(job, collectives, LARGER_BUCKETS)
    factors = {"mend-link": faster, "larger-buckets": larger, "overlap-last": overlapped, "free-transfers": free}
    for change, factor in factors.items():
        if factor is not None:
            gains.append(_with_factors(job, cost, collectives, change, factor))
    return tuple(sorted(gains, key=lambda each: (_LIMITS.get(each.change, 0), -each.speedup)))


def _with_factors(job: AlignedRanks, cost: Costs, collectives: pd.DataFrame, change: str, factors: Floats) -> WhatIf:
    """Return the gain if the transfer of each collective takes its factor times as long."""
    of_call = np.ones(len(job.program.transfer))
    of_call[collectives["call"].to_numpy()] = factors
    total = float(cost.step_ns.sum())
    return WhatIf(change, -1, total / max(float(with_transfers(job.program, of_call).sum()), 1.0))


def _in_larger_buckets(job: AlignedRanks, collectives: pd.DataFrame, times: int) -> Floats | None:
    """Return the factor of each collective's transfer if `times` neighbouring ones of a group and step are one.

    The last one of them carries the bytes of all, and what a call takes however small it is only once: the shortest
    transfer of the group. None without a group of data parallelism that makes so many calls a step.
    """
    factors = np.ones(len(collectives))
    changed = False
    for number in collectives["group"].unique():
        one = job.calls[job.calls["group"] == number]
        if parallelism(one[one["rank"] == one["rank"].iloc[0]], job.steps, trains=job.trains) != "data":
            continue
        rows = collectives[(collectives["group"] == number) & (collectives["kind"] == "all-reduce")]
        for _, step in rows[rows["step"] >= 0].groupby("step"):
            changed |= len(step) >= times
            factors[step.index] = merged(step["transfer_ns"].to_numpy(float), times, float(rows["transfer_ns"].min()))
    return factors if changed else None


def merged(transfer: Floats, times: int, least: float) -> Floats:
    """Return the factors of the transfers of one group and step, in order."""
    bucket = np.arange(len(transfer)) // times
    last = np.diff(bucket, append=bucket[-1] + 1) > 0
    total, size = (np.bincount(bucket, weights) for weights in (transfer, np.ones(len(transfer))))
    together = total - (size - 1) * least
    return np.where(last, together[bucket] / np.maximum(transfer, 1.0), 0.0)
