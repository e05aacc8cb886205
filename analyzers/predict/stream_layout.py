"""Lays out a step whose kernels and collectives run on two streams of a GPU, and orders the gradients of a step.

A collective starts when the previous collective and the kernels issued before it have ended; FSDP's gathers, which have
a separate stream, do not wait for kernels. A kernel starts when the previous kernel and the collective whose result
it reads have ended. While both streams work, both are slower, because they share multiprocessors and memory.
Gradients are in the order in which they become ready, and DistributedDataParallel sums them in buckets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2, prod

import msgspec
import numpy as np
import pandas as pd

from tracekit.analyzers.attribute import ACCUMULATED
from tracekit.analyzers.core import GPUS_OF_A_HOST, Bools, Floats, Ints, Link, numbers
from tracekit.analyzers.cost import GPU, Message, collective_ns, tensors
from tracekit.analyzers.predict.simulation import SYNC_RETURN_NS
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.predict.usual_step import typical_step
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import Trace, recorded_shapes, recorded_type

_NUMBERS = numbers(__file__)
KERNEL_BESIDE = _NUMBERS["kernel_beside"]
"""Slowdown of a kernel beside a collective."""
COLLECTIVE_BESIDE = _NUMBERS["collective_beside"]
"""Slowdown of a collective beside a kernel."""
Beside = tuple[float, float]
"""Factors on the duration of kernels and of collectives while both run."""


@dataclass(frozen=True, eq=False)
class Issued:
    """What the host issues, in order; times in ns."""

    host: Floats
    work: Floats
    """Duration of the kernel or collective by itself; 0: none."""
    collective: Bools
    early: Bools
    """Whether the collective starts without waiting for the kernels before it."""
    waits: Ints
    """The position of the collective whose result the kernel reads; -1: none."""
    sync: Bools
    """Whether the host then waits for the device."""

    def repeated(self, times: int) -> "Issued":
        """Return the same work, issued several times in a row."""
        width = len(self.host)
        tiled = {name: np.tile(getattr(self, name), times) for name in ("host", "work", "collective", "early", "sync")}
        waits = [np.where(self.waits >= 0, self.waits + at * width, -1) for at in range(times)]
        return Issued(**tiled, waits=np.concatenate(waits))


@dataclass(frozen=True, eq=False)
class LaidOut:
    host_start: Floats
    host_end: Floats
    start: Floats
    end: Floats
    """-1 if there is no work."""
    latency_ns: float


def lay_out(
    issued: Issued,
    *,
    launch_latency_ns: float,
    gap_ns: float,
    beside: Beside = (KERNEL_BESIDE, COLLECTIVE_BESIDE),
) -> LaidOut:
    count = len(issued.host)
    host_start, host_end = np.zeros(count), np.zeros(count)
    device = _Device(issued, launch_latency_ns, gap_ns, beside)
    now, first = 0.0, 0
    for last in [*np.flatnonzero(issued.sync).tolist(), count - 1]:
        part = slice(first, last + 1)
        host_end[part] = now + np.cumsum(issued.host[part])
        host_start[part] = host_end[part] - issued.host[part]
        if last < first:
            continue
        now, first = float(host_end[last]), last + 1
        device.run(range(part.start, part.stop), host_end)
        if issued.sync[last]:
            now = max(now, device.end.max(initial=0.0) + SYNC_RETURN_NS)
    return LaidOut(host_start, host_end, device.start, device.end, max(now, device.end.max(initial=0.0)))


class _Device:
    """Start and end times of the work on the two streams."""

    def __init__(self, issued: Issued, latency: float, gap: float, beside: Beside) -> None:
        self._issued, self._latency, self._gap, self._beside = issued, latency, gap, beside
        self.start, self.end = np.full(len(issued.host), -1.0), np.full(len(issued.host), -1.0)
        self._kernel = self._collective = -1
        """The last one of each stream."""

    def run(self, part: range, launched: Floats) -> None:
        """Run the work of a part, whose launches are known, to its end."""
        issued = self._issued
        kernels = [at for at in part if issued.work[at] > 0 and not issued.collective[at]]
        collectives = [at for at in part if issued.work[at] > 0 and issued.collective[at]]
        before = np.searchsorted(kernels, collectives) - 1
        after = {
            at: kernels[place] if place >= 0 else self._kernel for at, place in zip(collectives, before, strict=True)
        }
        queues, left = [kernels[::-1], collectives[::-1]], [0.0, 0.0]
        running: list[int] = [-1, -1]
        now = -np.inf
        while any(queues) or max(running) >= 0:
            begins = [self._begin(stream, queues, running, after, launched, now) for stream in (0, 1)]
            now = self._advance(now, begins, queues, running, left)

    def _begin(
        self,
        stream: int,
        queues: list[list[int]],
        running: list[int],
        after: dict[int, int],
        launched: Floats,
        now: float,
    ) -> float:
        """Return when the next work of a stream can begin; infinity while it waits for the other stream."""
        if running[stream] >= 0 or not queues[stream]:
            return np.inf
        at, previous = queues[stream][-1], (self._kernel, self._collective)[stream]
        other = int(self._issued.waits[at]) if stream == 0 else -1 if self._issued.early[at] else after[at]
        if other >= 0 and self.end[other] < 0:
            return np.inf
        ready = launched[at] + self._latency
        ready = max(ready, self.end[previous] + self._gap if previous >= 0 else -np.inf)
        return max(ready, self.end[other] if other >= 0 else -np.inf, now)

    def _advance(
        self, now: float, begins: list[float], queues: list[list[int]], running: list[int], left: list[float]
    ) -> float:
        """Advance to the next begin or end, and return its time."""
        both = min(running) >= 0
        slower = self._beside if both else (1.0, 1.0)
        ends = [now + left[stream] * slower[stream] if running[stream] >= 0 else np.inf for stream in (0, 1)]
        until = min(*begins, *ends)
        for stream in (0, 1):
            if running[stream] >= 0:
                left[stream] -= (until - now) / slower[stream]
                if ends[stream] <= until:
                    self._finish(stream, running, until)
            elif begins[stream] <= until:
                running[stream] = queues[stream].pop()
                left[stream] = float(self._issued.work[running[stream]])
                self.start[running[stream]] = until
        return until

    def _finish(self, stream: int, running: list[int], time: float) -> None:
        self.end[running[stream]] = time
        if stream == 0:
            self._kernel = running[stream]
        else:
            self._collective = running[stream]
        running[stream] = -1


@dataclass(frozen=True)
class Gradient:
    """The gradient of one parameter."""

    after: int
    """Number of ops in the op list that were launched before the gradient was ready."""
    bytes: int
    dtype: str


def gradients(trace: Trace, analysis: Analysis, base: Baseline) -> tuple[Gradient, ...]:
    """Return the gradients of the baseline's step; empty if it does not train or its shapes were not recorded."""
    step = typical_step(analysis)
    if step is None:
        return ()
    host, start = trace.host, int(step.host_start_ns)
    times = host["start_ns"].to_numpy(np.int64)
    inside = (times >= start) & (times < start + int(step.wall_ns))
    rows = np.flatnonzero((host["name"] == ACCUMULATED).to_numpy() & inside)
    rows = rows[np.argsort(times[rows], kind="stable")]
    ready = times[rows] + host["duration_ns"].to_numpy()[rows]
    after = np.searchsorted(np.maximum.accumulate(base.recorded.launched_ns), ready, "right")
    sizes = zip(*(_texts(host[name], rows) for name in ("shapes", "dtypes")), strict=True)
    read = [(int(place), _size(*size)) for place, size in zip(after, sizes, strict=True)]
    return tuple(Gradient(place, size[0], size[1]) for place, size in read if size is not None)


def _texts(column: pd.Series, rows: np.ndarray) -> list[str]:
    return column.iloc[rows].astype(object).fillna("").astype(str).tolist()


def _size(shapes: str, types: str) -> tuple[int, str] | None:
    """Return bytes and type of the first tensor; None if they were not recorded."""
    dtype = tensors.find(recorded_type(types))
    count = sum(prod(dims) for dims in recorded_shapes(shapes)[:1] if dims is not None)
    return (count * dtype.bytes, dtype.name) if dtype and count > 0 else None


FIRST_BYTES, CAP_BYTES = 1 << 20, 25 << 20
"""Default bucket sizes of PyTorch."""


@dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced together."""

    after: int
    """Number of ops in the op list that were launched before the bucket's last gradient was ready."""
    bytes: int
    gradients: int


def buckets(gradients: Sequence[Gradient], cap_bytes: int = CAP_BYTES) -> tuple[Bucket, ...]:
    """Return the buckets in the order in which they fill."""
    complete: list[Bucket] = []
    filling: dict[str, list[Gradient]] = {}
    started: set[str] = set()
    for gradient in gradients:
        of_type = filling.setdefault(gradient.dtype, [])
        of_type.append(gradient)
        cap = cap_bytes if gradient.dtype in started else min(FIRST_BYTES, cap_bytes)
        if sum(each.bytes for each in of_type) >= cap:
            complete.append(_bucket(filling.pop(gradient.dtype)))
            started.add(gradient.dtype)
    rest = [_bucket(of_type) for of_type in filling.values()]
    return tuple(sorted([*complete, *rest], key=lambda bucket: bucket.after))


def _bucket(gradients: list[Gradient]) -> Bucket:
    return Bucket(gradients[-1].after, sum(each.bytes for each in gradients), len(gradients))


ADAPTER_GBS, SUSTAINED = 50.0, 0.85
HOP_NS = 12e3


def all_reduce_ns(size: int, ranks: int, gpu: GPU, link: Link) -> float:
    """Return the time in nanoseconds of an all-reduce of `size` bytes."""
    return message_ns(Message("all-reduce", size, ranks), gpu, link)


def message_ns(message: Message, gpu: GPU, link: Link) -> float:
    """Return the time in nanoseconds of a collective with this message."""
    inside = min(message.ranks, GPUS_OF_A_HOST)
    on_host = collective_ns(msgspec.structs.replace(message, ranks=inside), gpu)
    if link == "nvlink" or message.ranks <= GPUS_OF_A_HOST:
        return on_host
    through_network = message.carried / (inside * ADAPTER_GBS * SUSTAINED)
    ways = 2 if message.kind == "all-reduce" else 1
    return max(on_host, through_network) + ways * ceil(log2(message.ranks / inside)) * HOP_NS
