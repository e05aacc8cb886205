"""What bounds each work item, groups of items, and the run.

An item's own bound, in this order:
- transfer: a copy between host and device or between devices, or a communication kernel.
- latency: below a third of its roof, and short (under 5 us: mostly start-up), or with blocks for less than half of the
  GPU's SMs, or held back by memory though all its data fit the L2 (then the bandwidth of device memory is not what it
  waits for). Where the cost is unknown, short or with few blocks. A persistent kernel, which launches about one block
  an SM and lets it loop, fills the GPU.
- compute or memory: the larger of the two roof times. "": cost or GPU unknown, and not short.

An item is bound by launch instead when the device was idle before it for longer than it ran, and the host was the
reason: it had been launched at most 10 us before the device went idle. For groups and for the run the idle time
before items counts as launch time, and the items' own time goes to their own bounds. Where a capture also timed the
run without a profiler, gaps are scaled down to that: the profiler slows the host.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.intervals import shared_ns, union_ns
from tracekit.analyzers.attribution.items import Items
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.results import BOUNDS, BoundShares
from tracekit.analyzers.roofline.costing import Costed
from tracekit.analyzers.roofline.roofs import Roofs

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Names = npt.NDArray[np.object_]

SHORT_NS = 5_000
LAUNCH_LATENCY_NS = 10_000
_NEAR_ROOF = 1 / 3
_FILLED = 0.5
"""Part of the SMs with a block, from which on a kernel is not too small for the GPU."""


def own_bound(items: Items, costed: Costed, roofs: Roofs, gpu: GPU | None) -> Names:
    """Per item its own bound; "" throughout for host time, which no roof is known of."""
    if not items.on_device:
        return np.full(len(items.start), "", dtype=object)
    transfer = costed.host_link | costed.peer_link
    known = np.isfinite(roofs.fraction)
    small = items.duration < SHORT_NS
    compute = np.nan_to_num(roofs.compute_s) > np.nan_to_num(roofs.memory_s)
    in_l2 = np.zeros(len(small), dtype=bool)
    if gpu:
        small |= (items.blocks >= 1) & (items.blocks < _FILLED * gpu.sms)
        in_l2 = ~compute & (costed.working_set < gpu.l2_bytes)
    latency = np.where(known, (roofs.fraction < _NEAR_ROOF) & (small | in_l2), small)
    names: Names = np.select(
        [transfer, latency, ~known, compute], ["transfer", "latency", "", "compute"], default="memory"
    ).astype(object)
    return names


def item_bound(own: Names, duration: Ints, gap: npt.NDArray[np.floating], delay: Ints) -> Names:
    """The items' bounds, launch included."""
    late = (delay < 0) | (delay <= gap + LAUNCH_LATENCY_NS)
    return np.where((gap > duration) & late, "launch", own)


def bound_codes(names: Names) -> npt.NDArray[np.int8]:
    """Position in BOUNDS; len(BOUNDS) for "": unknown."""
    return pd.Categorical(names, categories=[*BOUNDS, ""]).codes


def dominant(times: Floats) -> Names:
    """The bound of each group, from its time by bound (columns as BOUNDS, then unknown); "" without any time."""
    names = np.array([*BOUNDS, ""], dtype=object)
    return np.where(times.sum(axis=1) > 0, names[times.argmax(axis=1)], "")


def run_shares(own: Names, items: Items, wall_ns: float) -> BoundShares:
    """Shares of the run's time; `wall_ns` is that of all devices together. Work that exceeds it is scaled down to fit.

    Transfers count while nothing else runs on their device: what runs behind other work is hidden, and bounds nothing.
    Other work that runs at once shares time equally. Idle time is launch; in a run of nothing but transfers, transfer.
    """
    transfer = own == "transfer"
    busy = union_ns(items.start, items.end, items.device)
    others = shared_ns(items.start[~transfer], items.end[~transfer], items.device[~transfer])
    times = np.bincount(bound_codes(own[~transfer]), weights=others, minlength=len(BOUNDS) + 1)
    times[BOUNDS.index("transfer")] = busy - others.sum()
    times[BOUNDS.index("transfer" if len(own) and transfer.all() else "launch")] += max(wall_ns - busy, 0.0)
    shares = times / times.sum() if times.sum() else np.eye(len(times))[-1]
    return BoundShares(**dict(zip((*BOUNDS, "unknown"), shares.tolist(), strict=True)))
