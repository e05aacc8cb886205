"""Lays out a step whose kernels and collectives run on two streams of a GPU.

A collective starts when the previous collective and the kernels issued before it have ended; FSDP's gathers, which have
a separate stream, do not wait for kernels. A kernel starts when the previous kernel and the collective whose result
it reads have ended. While both streams work, both are slower, because they share multiprocessors and memory.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.core import numbers
from tracekit.analyzers.predict.simulation import SYNC_RETURN_NS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

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
