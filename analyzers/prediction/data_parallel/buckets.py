"""The buckets in which DistributedDataParallel reduces gradients, in the order in which gradients become ready.

It fills a bucket of each type until it holds as many bytes as its cap; the first one has a smaller cap, so that
communication begins early. (compute_bucket_assignment_by_size in torch/csrc/distributed/c10d/reducer.cpp)
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.analyzers.prediction.data_parallel.gradients import Gradient

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
