"""Changes of a job's communication, as factors on the transfer time of each collective.

A call of half the bytes, or over a link of twice the bandwidth, still takes at least the shortest transfer of its
group, which does not depend on the size.
"""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]

LARGER_BUCKETS = 4
"""Simulated size of gradient buckets, relative to that of the job."""
ACCUMULATED = 4
"""Simulated number of steps whose gradients are accumulated before they are reduced."""
_REDUCTIONS = ("all-reduce", "reduce-scatter")
Kinds = Mapping[int, str]
Change = Callable[[pd.DataFrame, Kinds], Floats | None]


def in_larger_buckets(collectives: pd.DataFrame, kinds: Kinds) -> Floats | None:
    """Return the factors if LARGER_BUCKETS consecutive reductions of gradients in a step become one.

    The last of them carries the bytes of all. None without a data-parallel group with as many calls per step.
    """
    factors, changed = np.ones(len(collectives)), False
    for rows in _of_groups(collectives, kinds, "data", ("all-reduce",)):
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
    return _free([*_of_groups(collectives, kinds, "data"), *_of_groups(collectives, kinds, "fsdp")], collectives)


def weights_kept(collectives: pd.DataFrame, phases: pd.Series, kinds: Kinds) -> Floats | None:
    """Return the factors if weights are not gathered again in the backward pass; None if they already are not.

    `phases` are those of the collectives.
    """
    gathers = _of_groups(collectives, kinds, "fsdp", ("all-gather",))
    return _free([rows[phases[rows.index] == "backward"] for rows in gathers], collectives)


def over_faster_links(collectives: pd.DataFrame) -> Floats:
    """Return the factors over links with twice the bandwidth."""
    transfer = collectives["transfer_ns"]
    least = transfer.groupby([collectives["group"], collectives["kind"].astype(str)]).transform("min")
    faster = least + (transfer - least) / 2
    return np.asarray(faster / np.maximum(transfer, 1.0), dtype=float)


def last_overlapped(collectives: pd.DataFrame) -> Floats:
    """Return the factors if the last collective of each step takes no time."""
    last = collectives.groupby("step")["start_ns"].transform("max") == collectives["start_ns"]
    return np.where(last & (collectives["step"] >= 0), 0.0, 1.0)


def _of_groups(
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
