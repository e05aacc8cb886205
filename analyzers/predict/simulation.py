"""Simulates a step: host and device timelines from the times of its ops.

The host issues ops one after another. At the end of its host time, each op launches its kernel, which starts once the
device is free and the launch has arrived:

    kernel_start = max(previous kernel_end + gap, host_end + launch_latency)

A synchronisation makes the host wait for the device. So does a full queue: launches are grouped in blocks, and each
block waits for the last but one. Ops that launch nothing have a kernel time of 0. Kernels without host time of their
own are nodes of a graph, which is a single launch.
"""

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Bools, Floats
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.predict.op_columns import OpList

Nanoseconds = npt.NDArray[np.int64]

SYNC_RETURN_NS = 5_000
"""Time in nanoseconds from the end of the last kernel to the return of the synchronisation that waits for it."""
QUEUED = 512
"""Launches per block. CUDA queues about 1,024 launches before a launch blocks."""


class Simulation(msgspec.Struct, frozen=True):
    """Start and end of every op on the host and of its kernel on the device, in nanoseconds after the start.

    An op without a kernel has kernel_start = kernel_end = -1.
    """

    host_start: Nanoseconds
    host_end: Nanoseconds
    kernel_start: Nanoseconds
    kernel_end: Nanoseconds
    latency_ns: int
    """Time in nanoseconds until the host is done and the device is idle."""


def simulate(
    host_ns: npt.ArrayLike,
    kernel_ns: npt.ArrayLike,
    *,
    launch_latency_ns: float,
    gap_ns: float = 0.0,
    sync: npt.ArrayLike | None = None,
) -> Simulation:
    """Lay out ops (arrays of one length, in host order) on one host thread and one stream.

    `gap_ns` is the idle time between two kernels that are queued back to back. `sync[i]` says that the host waits
    for the device after op i.
    """
    host, kernel, waits = _arrays(host_ns, kernel_ns, sync)
    times = np.full((4, len(host)), -1.0)
    host_now, device_free, before = 0.0, -np.inf, -np.inf
    for part in _segments(waits, host, kernel):
        host_now, before = max(host_now, before), device_free
        times[:, part] = _queue(host[part], kernel[part], host_now, device_free, launch_latency_ns, gap_ns)
        host_now = times[1, part.stop - 1]
        device_free = times[3, part].max(initial=device_free, where=kernel[part] > 0)
        if waits[part.stop - 1]:
            host_now = max(host_now, max(device_free, 0.0) + SYNC_RETURN_NS)
    host_start, host_end, kernel_start, kernel_end = np.rint(times).astype(np.int64)
    return Simulation(host_start, host_end, kernel_start, kernel_end, round(max(host_now, device_free)))


def latency_ns(
    host_ns: npt.ArrayLike,
    kernel_ns: npt.ArrayLike,
    *,
    launch_latency_ns: float,
    gap_ns: float = 0.0,
    sync: npt.ArrayLike | None = None,
) -> int:
    """Return `simulate(...).latency_ns` in less time: the running maximum at the end of each segment suffices."""
    host, kernel, waits = _arrays(host_ns, kernel_ns, sync)
    last = _ends(waits, host, kernel)
    first = np.zeros_like(last)
    first[1:] = last[:-1] + 1
    work = np.where(kernel > 0, kernel + gap_ns, 0.0)
    issued, queued = np.cumsum(host), np.cumsum(work)
    lead = np.where(kernel > 0, issued - (queued - work), -np.inf)
    start = (issued - host)[first] - (queued - work)[first]
    leads = np.maximum.reduceat(lead, first) - start
    host_now, device_free, before = 0.0, -np.inf, -np.inf
    sums = (_differences(total[last]).tolist() for total in (issued, queued))
    for ns, busy, ahead, waiting in zip(*sums, leads.tolist(), waits[last].tolist(), strict=True):
        host_now, before = max(host_now, before), device_free
        if ahead > -np.inf:
            device_free = busy - gap_ns + max(host_now + launch_latency_ns + ahead, device_free + gap_ns)
        host_now += ns
        if waiting:
            host_now = max(host_now, max(device_free, 0.0) + SYNC_RETURN_NS)
    return round(max(host_now, device_free))


def _differences(sums: Floats) -> Floats:
    """Return each running sum less the one before it."""
    each = sums.copy()
    each[1:] -= sums[:-1]
    return each


def waiting_later(host: Floats, kernel: Floats, sync: Bools, ahead: Floats) -> tuple[Floats, Floats, Bools]:
    """Return host times, kernel times and waits in which the host works before it waits.

    The first `ahead` nanoseconds of the next op's host time come between an op's launch and the wait after it. The
    device works meanwhile.
    """
    at = np.flatnonzero(ahead > 0)
    if not len(at):
        return host, kernel, sync
    host, sync = host.copy(), sync.copy()
    host[at + 1] -= ahead[at]
    sync[at] = False
    return np.insert(host, at + 1, ahead[at]), np.insert(kernel, at + 1, 0.0), np.insert(sync, at + 1, True)


def _arrays(
    host_ns: npt.ArrayLike, kernel_ns: npt.ArrayLike, sync: npt.ArrayLike | None
) -> tuple[Floats, Floats, Bools]:
    """Return host times, kernel times, and whether the host waits after each op."""
    host, kernel = np.asarray(host_ns, dtype=np.float64), np.asarray(kernel_ns, dtype=np.float64)
    return host, kernel, np.zeros(len(host), dtype=bool) if sync is None else np.asarray(sync, dtype=bool)


def _segments(waits: Bools, host: Floats, kernel: Floats) -> list[slice]:
    """Return the runs of ops between synchronisations, divided into blocks of launches."""
    stops = (_ends(waits, host, kernel) + 1).tolist()
    return [slice(a, b) for a, b in zip([0, *stops], stops, strict=False)]


def _ends(waits: Bools, host: Floats, kernel: Floats) -> npt.NDArray[np.intp]:
    """Return the last op of each run."""
    launches = (kernel > 0) & (host > 0)
    full = (np.cumsum(launches) % QUEUED == 0) & launches
    stops = waits | full
    stops[-1:] = True
    return np.flatnonzero(stops)


def _queue(
    host: Floats,
    kernel: Floats,
    host_now: float,
    device_free: float,
    latency: float,
    gap: float,
) -> Floats:
    """Simulate one segment; return rows of host start, host end, kernel start, kernel end.

    end_i = max(end_{i-1} + gap, arrival_i) + k_i equals W_i + max_{j <= i}(arrival_j - W_{j-1}) where W sums the kernel
    times and gaps. A running maximum replaces the loop.
    """
    host_end = host_now + np.cumsum(host)
    launches = kernel > 0
    work = np.cumsum(kernel[launches] + gap)
    arrival = np.maximum(host_end[launches] + latency, device_free + gap)
    end = work - gap + np.maximum.accumulate(arrival - (work - kernel[launches] - gap))
    kernel_start, kernel_end = np.full(len(host), -1.0), np.full(len(host), -1.0)
    kernel_start[launches], kernel_end[launches] = end - kernel[launches], end
    return np.stack([host_end - host, host_end, kernel_start, kernel_end])


def side_by_side(ops: OpList, work: pd.DataFrame, gpu: GPU) -> float:
    """Return the least fraction (0 to 1) of a step's busy time that its work takes if nothing delays its streams.

    Each stream runs its own work (WORK) in order. Together, streams move no more bytes and do no more FLOPs than the
    GPU can.
    """
    busy = float(ops.kernel_ns.sum())
    if work["stream"].nunique() < 2 or not busy:
        return 1.0
    costs = [cost for cost in ops.cost if cost is not None]
    moving = sum(cost.bytes for cost in costs) / gpu.bandwidth
    computing = sum(cost.flops / gpu.peak_flops(cost.precision) for cost in costs if cost.precision)
    longest = float(work.groupby("stream")["duration_ns"].sum().max())
    return float(np.clip(max(longest, moving * 1e9, computing * 1e9) / busy, 0.0, 1.0))


REPRODUCED = 0.05
"""Largest relative error at which a simulation reproduces the measured time."""


class Reproduction(msgspec.Struct, frozen=True):
    """Simulated latency of an unchanged step, and its measured latency."""

    simulated_us: float
    stated_us: float

    @property
    def error(self) -> float:
        """Simulated divided by stated latency, minus 1."""
        return self.simulated_us / self.stated_us - 1 if self.stated_us else 0.0

    @property
    def holds(self) -> bool:
        return abs(self.error) <= REPRODUCED
