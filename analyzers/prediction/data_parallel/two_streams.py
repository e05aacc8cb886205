"""Simulates a step whose kernels and collectives run on two streams of a GPU.

A collective starts when the kernels before it and the previous collective have ended. Kernels beside a collective are
slower, because it occupies multiprocessors. Before an op that joins the streams, kernels wait for all collectives.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.prediction.simulate import SYNC_RETURN_NS

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Rows:
    """Ops in host order; times in ns."""

    host: Floats
    kernel: Floats
    transfer: Floats
    """Time of the collective that the op calls; 0: the op calls none."""
    sync: Bools
    """Whether the host waits for the kernels after the op."""
    joins: Bools
    """Whether the op's kernel waits for all earlier collectives."""

    def repeated(self, times: int) -> "Rows":
        host, kernel, transfer = (np.tile(column, times) for column in (self.host, self.kernel, self.transfer))
        return Rows(host, kernel, transfer, np.tile(self.sync, times), np.tile(self.joins, times))


@dataclass(frozen=True)
class Laid:
    """Latency of the ops, and the time in it that kernels wait for collectives."""

    latency_ns: float
    exposed_ns: float


def lay_out(rows: Rows, *, launch_latency_ns: float, gap_ns: float, slowed: float) -> Laid:
    """Return the simulated times. `slowed` is the factor on kernel time beside a collective."""
    host, device = 0.0, _Device(gap_ns, slowed)
    columns = (rows.host, rows.kernel, rows.transfer, rows.sync, rows.joins)
    for own, kernel, transfer, waits, joins in zip(*(column.tolist() for column in columns), strict=True):
        host += own
        if joins:
            device.join()
        if kernel > 0:
            device.run(host + launch_latency_ns, kernel)
        if transfer > 0:
            device.communicate(host + launch_latency_ns, transfer)
        if waits:
            host = max(host, max(device.free, 0.0) + SYNC_RETURN_NS)
    return Laid(max(host, device.free, device.communicated), device.exposed)


class _Device:
    """Times at which the two streams of a GPU become free."""

    def __init__(self, gap_ns: float, slowed: float) -> None:
        self._gap, self._slowed = gap_ns, slowed
        self.free = self.communicated = -np.inf
        self.exposed = 0.0
        self._collectives: list[tuple[float, float]] = []
        """Start and end of each collective that later kernels may overlap."""

    def join(self) -> None:
        if self.communicated > self.free:
            self.exposed += self.communicated - max(self.free, 0.0)
            self.free = self.communicated

    def communicate(self, launched: float, transfer: float) -> None:
        start = max(launched, self.free, self.communicated + self._gap)
        self.communicated = start + transfer
        self._collectives.append((start, self.communicated))

    def run(self, launched: float, kernel: float) -> None:
        now, left = max(launched, self.free + self._gap), kernel
        while self._collectives and left > 0:
            start, end = self._collectives[0]
            if end <= now:
                self._collectives.pop(0)
                continue
            alone = min(left, max(start - now, 0.0))
            now, left = now + alone, left - alone
            beside = min(left * self._slowed, end - now) if now >= start else 0.0
            now, left = now + beside, left - beside / self._slowed
            if left <= 0 or now < start:
                break
        self.free = now + max(left, 0.0)
