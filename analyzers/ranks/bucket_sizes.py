"""Gradients in fewer, larger buckets: the transfers of a data-parallel job if neighbouring all-reduces were one."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.ranks.aligned import AlignedRanks
from tracekit.analyzers.ranks.parallelism import parallelism

Floats = npt.NDArray[np.float64]


def in_larger_buckets(job: AlignedRanks, collectives: pd.DataFrame, times: int) -> Floats | None:
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
            factors[step.index] = _merged(step["transfer_ns"].to_numpy(float), times, float(rows["transfer_ns"].min()))
    return factors if changed else None


def _merged(transfer: Floats, times: int, least: float) -> Floats:
    """Factors for the calls of one group and step, in order."""
    bucket = np.arange(len(transfer)) // times
    last = np.diff(bucket, append=bucket[-1] + 1) > 0
    total, size = (np.bincount(bucket, weights) for weights in (transfer, np.ones(len(transfer))))
    together = total - (size - 1) * least
    return np.where(last, together[bucket] / np.maximum(transfer, 1.0), 0.0)
