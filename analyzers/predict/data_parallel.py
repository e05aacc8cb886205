"""Predicts a training step on several GPUs from one on a single GPU (DistributedDataParallel, NCCL).

Each GPU does the same work. Data parallelism adds a copy of each gradient into its bucket and back, a collective per
bucket on a separate stream, and host time for these. Kernels and collectives that run side by side are both slower.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2
from statistics import NormalDist

import numpy as np

from tracekit.analyzers.core import GPUS_OF_A_HOST, InputError, Interval, Link, numbers
from tracekit.analyzers.predict.op_columns import present
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.predict.stream_layout import (
    COLLECTIVE_BESIDE,
    KERNEL_BESIDE,
    Beside,
    Bucket,
    Gradient,
    Issued,
    LaidOut,
    all_reduce_ns,
    buckets,
    lay_out,
)
from tracekit.analyzers.predict.transforms.by_cost import plain_launch_ns

_NUMBERS = numbers(__file__)
LAUNCHES_A_GRADIENT = _NUMBERS["launches_a_gradient"]
"""Host time of DistributedDataParallel's hook and copy into the bucket, in plain launches."""
LAUNCHES_BACK = _NUMBERS["launches_back"]
"""The same of the copy back."""
LAUNCHES_A_BUCKET = _NUMBERS["launches_a_bucket"]
"""The same to call a collective."""
LAUNCHES_A_STEP = _NUMBERS["launches_a_step"]
"""The same once per step."""
SHARED = _NUMBERS["shared"]
"""Growth of the host time of each process if a host runs twice as many."""
SPREAD = _NUMBERS["spread"]
"""Standard deviation of a rank's host time in a step, over the mean."""


@dataclass(frozen=True)
class Assumed:
    """Assumed factors on values that the trace does not hold: transfer time, added host time, slowdown of concurrent
    kernels and collectives, and the difference between the hosts of several ranks and that of one."""

    transfer: float
    host: float
    slowdown: float
    hosts: float

    def pace(self, ranks: int) -> float:
        """Return the factor on the host time of one process: ranks share a host, and a step waits for the slowest."""
        if ranks == 1:
            return 1.0
        shared = SHARED * log2(min(ranks, GPUS_OF_A_HOST))
        slowest = SPREAD * NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
        return (1 + self.hosts * shared) * (1 + self.hosts * slowest)

    @property
    def beside(self) -> Beside:
        return 1 + self.slowdown * (KERNEL_BESIDE - 1), 1 + self.slowdown * (COLLECTIVE_BESIDE - 1)


_COPY, _REDUCES = 0, 1
_SCENARIOS = (Assumed(0.85, 0.5, 0.5, 0.0), Assumed(1.0, 1.0, 1.0, 1.0), Assumed(1.3, 1.5, 1.5, 3.0))


@dataclass(frozen=True)
class Scaling:
    """A training step on `ranks` GPUs, each with the batch of the single GPU."""

    ranks: int
    one_us: float
    latency_us: Interval
    gradient_bytes: int
    buckets: int
    transfer_us: float
    """Summed time of all collectives in a step."""
    exposed_us: float
    """Time in a step in which kernels wait for collectives."""
    copies_us: float
    host_us: float
    """Host time added to a step."""

    @property
    def efficiency(self) -> Interval:
        """Throughput per GPU divided by the throughput of a single GPU (weak scaling)."""
        took = self.latency_us
        return Interval(*(min(1.0, self.one_us / time) for time in (took.high, took.expected, took.low)))


def scaling(base: Baseline, gradients: Sequence[Gradient], ranks: int, link: Link = "nvlink") -> Scaling:
    """Return the predicted scaling. Raises InputError if it cannot be predicted."""
    _check(base, gradients, ranks, link)
    filled = buckets(gradients)
    transfers = [all_reduce_ns(bucket.bytes, ranks, base.gpu, link) for bucket in filled]
    alone = _alone(base)
    several = [_with_gradients(base, gradients, filled, transfers, assumed) for assumed in _SCENARIOS]
    laid = [_step(base, each, assumed, ranks) for each, assumed in zip(several, _SCENARIOS, strict=True)]
    scale = base.unprofiled_ns / max(_step(base, alone, _SCENARIOS[1], 1).latency_ns, 1.0) / 1e3
    expected = several[1]
    return Scaling(
        ranks=ranks,
        one_us=base.unprofiled_ns / 1e3,
        latency_us=Interval(*sorted(each.latency_ns * scale for each in laid)),
        gradient_bytes=sum(each.bytes for each in gradients),
        buckets=len(filled),
        transfer_us=float(expected.work[expected.collective].sum()) / 1e3,
        exposed_us=laid[1].exposed_ns / 1e3,
        copies_us=float(expected.work[~expected.collective].sum() - alone.work.sum()) / 1e3,
        host_us=float(expected.host.sum() - alone.host.sum()) / 1e3,
    )


def _check(base: Baseline, gradients: Sequence[Gradient], ranks: int, link: Link) -> None:
    why, remedy = "", "Record a training step of one GPU, with record_shapes=True."
    if not gradients:
        why = "The trace shows no gradients: the step does not train, or the shapes of its ops were not recorded."
    elif present(base.ops.message).any():
        why = "Its step has collectives already."
    elif link == "nvlink" and ranks > GPUS_OF_A_HOST:
        why = f"{ranks} GPUs are not those of one host."
        remedy = f"Ask for 2 to {GPUS_OF_A_HOST}, or name the network between hosts: --link ib."
    if why:
        raise InputError("Data-parallel scaling cannot be predicted from this trace.", why, remedy)


@dataclass(frozen=True)
class _Laid:
    """The latency of a step, and the time in the step that kernels wait for collectives."""

    latency_ns: float
    exposed_ns: float


def _step(base: Baseline, issued: Issued, assumed: Assumed, ranks: int) -> _Laid:
    """Return the times of a step among other steps, if steps overlap."""
    issued = replace(issued, host=issued.host * assumed.pace(ranks))

    def of(steps: int) -> _Laid:
        times = {"launch_latency_ns": base.launch_latency_ns, "gap_ns": base.gap_ns}
        rows = issued.repeated(steps)
        laid = lay_out(rows, **times, beside=assumed.beside)
        return _Laid(laid.latency_ns, _exposed_ns(rows, laid, base.launch_latency_ns))

    if not base.overlaps:
        return of(1)
    two, three = of(2), of(3)
    return _Laid(three.latency_ns - two.latency_ns, three.exposed_ns - two.exposed_ns)


def _exposed_ns(issued: Issued, laid: LaidOut, launch_latency_ns: float) -> float:
    """Return how long kernels that are launched and whose predecessor has ended wait for collectives."""
    kernels = np.maximum.accumulate(np.where(issued.collective, -1.0, laid.end))
    joins = np.flatnonzero(issued.waits >= 0)
    ready = np.maximum(laid.host_end[joins] + launch_latency_ns, np.append(0.0, kernels)[joins])
    return float(np.maximum(laid.end[issued.waits[joins]] - ready, 0.0).sum())


def _alone(base: Baseline) -> Issued:
    host, kernel, sync = base.laid_out(base.ops)
    never = np.zeros(len(host), dtype=bool)
    return Issued(host, kernel, collective=never, early=never, waits=np.full(len(host), -1), sync=sync.astype(bool))


def _with_gradients(
    base: Baseline,
    gradients: Sequence[Gradient],
    filled: Sequence[Bucket],
    transfers: Sequence[float],
    assumed: Assumed,
) -> Issued:
    """Return the ops of the step with the work that DistributedDataParallel adds: rows (place, host, work, kind)."""
    alone, launch = _alone(base), plain_launch_ns(base) * assumed.host
    last = max(each.after for each in gradients)
    copies = [(each.after, launch * LAUNCHES_A_GRADIENT, _copy_ns(base, each), _COPY) for each in gradients]
    calls = [
        (each.after, launch * LAUNCHES_A_BUCKET, took * assumed.transfer, _REDUCES)
        for each, took in zip(filled, transfers, strict=True)
    ]
    back = [(last, launch * LAUNCHES_BACK, _copy_ns(base, each), _COPY) for each in gradients]
    begins = (0, launch * LAUNCHES_A_STEP, 0.0, _COPY)
    place, host, work, kind = zip(begins, *sorted([*copies, *calls], key=_place), *back, strict=True)
    reduces = np.insert(alone.collective, place, np.array(kind) == _REDUCES)
    first_back = last + len(place) - len(back)
    waits = np.full(len(reduces), -1)
    waits[first_back] = np.flatnonzero(reduces)[-1]
    return Issued(
        host=np.insert(alone.host, place, host),
        work=np.insert(alone.work, place, work),
        collective=reduces,
        early=np.zeros(len(reduces), dtype=bool),
        waits=waits,
        sync=np.insert(alone.sync, place, False),
    )


def _place(row: tuple[float, ...]) -> float:
    return row[0]


def _copy_ns(base: Baseline, gradient: Gradient) -> float:
    return base.gpu.launch_us * 1e3 / 2 + 2 * gradient.bytes / (base.gpu.bandwidth * base.gpu.copy_efficiency) * 1e9
