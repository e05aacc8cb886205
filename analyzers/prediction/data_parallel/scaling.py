"""Predicts a training step on several GPUs from one on a single GPU (DistributedDataParallel, NCCL).

Each GPU does the same work. Data parallelism adds a copy of each gradient into its bucket and back, a collective per
bucket on a separate stream, host time for these, and a slowdown of kernels that run beside collectives. The processes
of one host slow each other's host time down, by SHARED for each doubling of their number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2

import numpy as np

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.hardware.hosts import GPUS_OF_A_HOST, Link
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.data_parallel.buckets import Bucket, buckets
from tracekit.analyzers.prediction.data_parallel.gradients import Gradient
from tracekit.analyzers.prediction.data_parallel.links import all_reduce_ns
from tracekit.analyzers.prediction.data_parallel.two_streams import Laid, Rows, lay_out
from tracekit.analyzers.transforms.plain_launch import plain_launch_ns

BLOCKS = 24
"""Multiprocessors that an NCCL collective occupies, one per channel."""
LAUNCHES_A_GRADIENT, LAUNCHES_BACK, LAUNCHES_A_BUCKET, LAUNCHES_A_STEP = 1.7, 1.0, 10.0, 30.0
"""Host time of DistributedDataParallel in plain launches: of its hook and copy into the bucket, of the copy back, to
call a collective, and once per step. Differences between traces of GPT-2 on one H200 and on two."""
SHARED = 0.15
"""Growth of the host time of each process if a host runs twice as many. Steps of Llama and GPT-2 that their hosts
determine, on three hosts of two and four H200, kept 0.64 to 0.86 of one GPU's throughput."""


@dataclass(frozen=True)
class Assumed:
    """Assumed factors on values that the trace does not hold: transfer time, added host time, kernel slowdown, and
    slowdown of hosts."""

    transfer: float
    host: float
    occupied: float
    shared: float

    def pace(self, ranks: int) -> float:
        """Return the factor on the host time of a process beside those of the other ranks on its host."""
        return 1 + self.shared * SHARED * log2(min(ranks, GPUS_OF_A_HOST))


_SCENARIOS = (Assumed(0.85, 0.5, 0.0, 0.0), Assumed(1.0, 1.0, 1.0, 1.0), Assumed(1.3, 1.5, 2.0, 2.0))


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
    """Host time added to a step, also by the processes of the other ranks on the host."""

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
    before = _rows(base, [], [], [], _SCENARIOS[1])
    alone = _step(base, before, 1.0)
    laid = [_scenario(base, gradients, filled, transfers, ranks, assumed) for assumed in _SCENARIOS]
    scale = base.unprofiled_ns / max(alone.latency_ns, 1.0) / 1e3
    expected = _rows(base, gradients, filled, transfers, _SCENARIOS[1])
    return Scaling(
        ranks=ranks,
        one_us=base.unprofiled_ns / 1e3,
        latency_us=Interval(*sorted(each.latency_ns * scale for each in laid)),
        gradient_bytes=sum(each.bytes for each in gradients),
        buckets=len(filled),
        transfer_us=float(expected.transfer.sum()) / 1e3,
        exposed_us=laid[1].exposed_ns / 1e3,
        copies_us=float(expected.kernel.sum() - before.kernel.sum()) / 1e3,
        host_us=float(expected.host.sum() * _SCENARIOS[1].pace(ranks) - before.host.sum()) / 1e3,
    )


def _check(base: Baseline, gradients: Sequence[Gradient], ranks: int, link: Link) -> None:
    why, remedy = "", "Record a training step of one GPU, with record_shapes=True."
    if not gradients:
        why = "The trace shows no gradients: the step does not train, or the shapes of its ops were not recorded."
    elif base.ops["message"].notna().any():
        why = "Its step has collectives already."
    elif link == "nvlink" and ranks > GPUS_OF_A_HOST:
        why = f"{ranks} GPUs are not those of one host."
        remedy = f"Ask for 2 to {GPUS_OF_A_HOST}, or name the network between hosts: --link ib."
    if why:
        raise InputError("Data-parallel scaling cannot be predicted from this trace.", why, remedy)


def _scenario(
    base: Baseline,
    gradients: Sequence[Gradient],
    filled: Sequence[Bucket],
    transfers: Sequence[float],
    ranks: int,
    assumed: Assumed,
) -> Laid:
    free = max(1 - assumed.occupied * BLOCKS / max(base.gpu.sms, 2 * BLOCKS + 1), 0.1)
    rows = _rows(base, gradients, filled, transfers, assumed)
    return _step(base, replace(rows, host=rows.host * assumed.pace(ranks)), 1 / free)


def _step(base: Baseline, rows: Rows, slowed: float) -> Laid:
    def of(steps: int) -> Laid:
        times = {"launch_latency_ns": base.launch_latency_ns, "gap_ns": base.gap_ns}
        return lay_out(rows.repeated(steps), slowed=slowed, **times)

    if not base.overlaps:
        return of(1)
    two, three = of(2), of(3)
    return Laid(three.latency_ns - two.latency_ns, three.exposed_ns - two.exposed_ns)


def _rows(
    base: Baseline,
    gradients: Sequence[Gradient],
    filled: Sequence[Bucket],
    transfers: Sequence[float],
    assumed: Assumed,
) -> Rows:
    """Return the ops of the step with the work that DistributedDataParallel adds."""
    host, kernel, sync = base.laid_out(base.ops)
    zero = np.zeros(len(host))
    rows = Rows(host, kernel, zero, sync.astype(bool), zero.astype(bool))
    if not gradients:
        return rows
    launch = plain_launch_ns(base) * assumed.host
    last = max(each.after for each in gradients)
    copies = [(each.after, launch * LAUNCHES_A_GRADIENT, _copy_ns(base, each), 0.0) for each in gradients]
    calls = [
        (each.after, launch * LAUNCHES_A_BUCKET, 0.0, took * assumed.transfer)
        for each, took in zip(filled, transfers, strict=True)
    ]
    back = [(last, launch * LAUNCHES_BACK, _copy_ns(base, each), 0.0) for each in gradients]
    before = sorted([*copies, *calls], key=_place)
    added = np.array([(0, launch * LAUNCHES_A_STEP, 0.0, 0.0), *before, *back])
    joins = np.zeros(len(added), dtype=bool)
    joins[1 + len(before)] = True
    place = added[:, 0].astype(int)
    return Rows(
        host=np.insert(host, place, added[:, 1]),
        kernel=np.insert(kernel, place, added[:, 2]),
        transfer=np.insert(zero, place, added[:, 3]),
        sync=np.insert(rows.sync, place, False),
        joins=np.insert(rows.joins, place, joins),
    )


def _place(row: tuple[float, ...]) -> float:
    return row[0]


def _copy_ns(base: Baseline, gradient: Gradient) -> float:
    return base.gpu.launch_us * 1e3 / 2 + 2 * gradient.bytes / (base.gpu.bandwidth * base.gpu.copy_efficiency) * 1e9
