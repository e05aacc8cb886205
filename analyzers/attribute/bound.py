"""Finds the bound of each work item, of groups of items, and of the run.

An item's own bound is the first of these that applies:
- transfer: it is a copy between host and device or between devices, or a communication kernel.
- latency: it is below a third of its roof, and is short (under 5 us, mostly start-up), or has blocks for less than
  half of the GPU's SMs, or fewer warps than the GPU has schedulers (four per SM: some have nothing to issue, and the
  others wait for one warp's instructions), or is memory-bound although all its data fit in the L2 cache (then it does
  not wait for the bandwidth of device memory). An item with unknown cost is bound by latency if it is short or has few
  blocks or warps. A persistent kernel, which launches about one block of several warps per SM, fills the GPU. The
  layers of serving engines whose weights and caches are not among their inputs have an unknown cost, too: its lower
  bound says nothing while it is far below.
- compute or memory: the larger of the two roof times. "" if the cost or the GPU is unknown and it is not short.

Instead, an item is bound by launch if the device was idle before it for longer than it ran because of the host, which
launched it at most 10 us before the device went idle. For groups and for the run, the idle time before items counts as
launch time, and the items' own time goes to their own bounds. If a capture also timed the run without a profiler, which
slows the host, gaps are scaled down accordingly.
"""

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.costing import Costed
from tracekit.analyzers.attribute.intervals import shared_ns, union_ns
from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.core import Floats, Ints
from tracekit.analyzers.cost import GPU, sm_limits
from tracekit.analyzers.results import BOUNDS, BoundShares


class Roofs(msgspec.Struct, frozen=True):
    """Roofline times in seconds, and roof fractions, with one entry per item. NaN if the GPU or the cost is unknown."""

    compute_s: Floats
    memory_s: Floats
    fraction: Floats

    @property
    def seconds(self) -> Floats:
        """The larger of the two times; the memory time if FLOPs are unknown."""
        return np.fmax(self.compute_s, self.memory_s)


def roofs(costed: Costed, duration_ns: Ints, gpu: GPU | None) -> Roofs:
    """Return roofline times of the items, and their fractions of the measured durations, which may exceed 1."""
    unknown = np.full(len(duration_ns), np.nan)
    if gpu is None:
        return Roofs(unknown, unknown, unknown)
    compute = costed.flops / _peaks(costed, gpu)
    memory = costed.bytes / _bandwidths(costed, gpu)
    with np.errstate(invalid="ignore", divide="ignore"):
        fraction = np.where(duration_ns > 0, np.fmax(compute, memory) / (duration_ns * 1e-9), np.nan)
    return Roofs(compute, memory, fraction)


def intensity(flops: Floats, byte_count: Floats) -> Floats:
    """Return the FLOPs per byte; NaN if either is unknown or there are no bytes."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(byte_count > 0, flops / byte_count, np.nan)


def _peaks(costed: Costed, gpu: GPU) -> Floats:
    peaks = np.full(len(costed.flops), gpu.peak_flops("fp32"))
    for precision in set(costed.precision.tolist()) - {""}:
        peaks[costed.precision == precision] = gpu.peak_flops(precision)
    return peaks


def _bandwidths(costed: Costed, gpu: GPU) -> Floats:
    between_devices = (gpu.nvlink_gbs / 2 or gpu.pcie_gbs) * 1e9
    links = [costed.unknown_link, costed.host_link, costed.peer_link]
    return np.select(links, [np.nan, gpu.pcie_gbs * 1e9, between_devices], default=gpu.bandwidth)


Names = npt.NDArray[np.object_]

_PARTLY_COUNTED = ("gemm", "attention")
"""Families whose estimated costs leave out weights or caches."""
SHORT_NS = 5_000
LAUNCH_LATENCY_NS = 10_000
_NEAR_ROOF = 1 / 3
_FILLED = 0.5
"""A kernel with blocks for less than this fraction of the SMs is too small for the GPU."""


_OWN: Names = np.array(["transfer", "latency", "", "compute", "memory"], dtype=object)


def own_bound(items: WorkItems, costed: Costed, roofs: Roofs, gpu: GPU | None) -> Names:
    """Return the own bound of each item; "" for host time, whose roofs are unknown."""
    if not items.on_device:
        return np.full(len(items.start), "", dtype=object)
    transfer = costed.host_link | costed.peer_link
    partly = costed.estimated & np.isin(costed.family, _PARTLY_COUNTED)
    known = np.isfinite(roofs.fraction) & ~(partly & (roofs.fraction < _NEAR_ROOF))
    small = items.duration < SHORT_NS
    compute = np.nan_to_num(roofs.compute_s) > np.nan_to_num(roofs.memory_s)
    in_l2 = np.zeros(len(small), dtype=bool)
    if gpu:
        small |= _too_few(items, gpu)
        in_l2 = ~compute & (costed.working_set < gpu.l2_bytes)
    latency = np.where(known, (roofs.fraction < _NEAR_ROOF) & (small | in_l2), small)
    return _OWN[np.select([transfer, latency, ~known, compute], [0, 1, 2, 3], default=4)]


def _too_few(items: WorkItems, gpu: GPU) -> npt.NDArray[np.bool_]:
    """Return which items have too few blocks or warps for the GPU."""
    limits = sm_limits(gpu)
    warps = items.blocks.astype(np.float64) * -(-items.threads // limits.threads_of_a_warp)
    few_warps = (items.threads >= 1) & (warps < limits.schedulers * gpu.sms)
    return (items.blocks >= 1) & ((items.blocks < _FILLED * gpu.sms) | few_warps)


def item_bound(own: Names, duration: Ints, gap: npt.NDArray[np.floating], delay: Ints) -> Names:
    """Return the bound of each item, including launch. `gap` and `delay` are in ns."""
    late = (delay < 0) | (delay <= gap + LAUNCH_LATENCY_NS)
    bound = own.copy()
    bound[(gap > duration) & late] = "launch"
    return bound


def bound_codes(names: Names) -> npt.NDArray[np.int8]:
    """Return positions in BOUNDS; len(BOUNDS) for "" (unknown)."""
    return pd.Categorical(names, categories=[*BOUNDS, ""]).codes


def dominant(times: Floats) -> Names:
    """Return the bound with most time in each group, from times by bound (columns as BOUNDS, then unknown).

    It is "" for a group without time.
    """
    names = np.array([*BOUNDS, ""], dtype=object)
    return np.where(times.sum(axis=1) > 0, names[times.argmax(axis=1)], "")


def run_shares(own: Names, items: WorkItems, inside: npt.NDArray[np.bool_], wall_ns: float) -> BoundShares:
    """Return the shares of the run's time by bound, for the items `inside`. `wall_ns` is the time of all devices
    together.

    If the work takes longer than `wall_ns`, the shares are those of the work. Transfers count only while nothing else
    runs on their device, because hidden transfers bound nothing. Other overlapping work shares time equally. Idle time
    is launch.
    """
    own = own[inside]
    start, end, device = (each[inside] for each in (items.start, items.end, items.device))
    transfer = own == "transfer"
    busy = union_ns(start, end, device)
    others = shared_ns(start[~transfer], end[~transfer], device[~transfer])
    times = np.bincount(bound_codes(own[~transfer]), weights=others, minlength=len(BOUNDS) + 1)
    times[BOUNDS.index("transfer")] = busy - others.sum()
    times[BOUNDS.index("launch")] += max(wall_ns - busy, 0.0)
    shares = times / times.sum() if times.sum() else np.eye(len(times))[-1]
    return BoundShares(**dict(zip((*BOUNDS, "unknown"), shares.tolist(), strict=True)))
