"""Bytes and time of a group of ops, unfused and as one kernel."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.fusion.backward_ops import ops_of
from tracekit.analyzers.fusion.kernel import Kernel
from tracekit.analyzers.fusion.replacement import costs_after
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.kernel_time import estimate_ns

ERROR = Interval(1.3, 1.0, 0.85)
"""Time of our kernel divided by the time of PyTorch's pointwise kernels that move as many bytes; norms have the same
rate."""


@dataclass(frozen=True)
class Estimate:
    """Modelled time of one group of a kind. In training, it includes the backward pass."""

    bytes_before: int
    bytes_after: int
    launches_before: int
    launches_after: int
    modelled_ns: float
    """Kernel time of the ops by the kernel model."""
    modelled_after_ns: float
    bound_by_memory: bool
    """Whether the kernels take longer to move their bytes than to compute."""

    @property
    def saves(self) -> bool:
        """Whether the kernel saves launches, bytes or time."""
        saved = self.launches_before > self.launches_after or self.bytes_before > self.bytes_after
        return saved or self.modelled_ns > self.modelled_after_ns

    def after_ns(self, before_ns: float) -> Interval:
        """Return the predicted kernel time if the ops take `before_ns`, scaled by the modelled ratio."""
        scale = before_ns / self.modelled_ns if self.modelled_ns else 1.0
        low, expected, high = (
            self.modelled_after_ns * scale * each for each in (ERROR.high, ERROR.expected, ERROR.low)
        )
        return Interval(low, expected, high)


def estimate(kernel: Kernel, gpu: GPU, backward: Mapping[int, Sequence[int]]) -> Estimate:
    graph, group = kernel.group.graph, kernel.group
    before = [cost for node in ops_of(group, backward) if (cost := graph.cost(node)) is not None]
    after = costs_after(kernel, before)
    return Estimate(
        sum(cost.bytes for cost in before),
        sum(cost.bytes for cost in after),
        len(before),
        len(after),
        modelled_ns(before, gpu),
        modelled_ns(after, gpu),
        _bytes_ns(after, gpu) >= _flops_ns(after, gpu),
    )


def _bytes_ns(costs: Iterable[Cost], gpu: GPU) -> float:
    return sum(cost.bytes for cost in costs) / (gpu.bandwidth * gpu.copy_efficiency) * 1e9


def _flops_ns(costs: Iterable[Cost], gpu: GPU) -> float:
    return sum(cost.flops / gpu.sustained_flops(cost.precision) for cost in costs) * 1e9


def modelled_ns(costs: Iterable[Cost], gpu: GPU) -> float:
    """Return the summed kernel time by the kernel model."""
    return sum(estimate_ns(cost, gpu) for cost in costs)
