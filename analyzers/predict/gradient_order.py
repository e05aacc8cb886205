"""The gradients of a training step, in the order in which they become ready."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, log2, prod

import numpy as np
import pandas as pd

from tracekit.analyzers.attribute import ACCUMULATED
from tracekit.analyzers.core import GPUS_OF_A_HOST, Link
from tracekit.analyzers.cost import GPU, Message, collective_ns, tensors
from tracekit.analyzers.predict.oplist import typical_step
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import Trace, recorded_shapes, recorded_type


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
    after = np.searchsorted(np.maximum.accumulate(base.recorded.launched_ns.to_numpy(np.int64)), ready, "right")
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
    on_host = collective_ns(replace(message, ranks=inside), gpu)
    if link == "nvlink" or message.ranks <= GPUS_OF_A_HOST:
        return on_host
    through_network = message.carried / (inside * ADAPTER_GBS * SUSTAINED)
    ways = 2 if message.kind == "all-reduce" else 1
    return max(on_host, through_network) + ways * ceil(log2(message.ranks / inside)) * HOP_NS
