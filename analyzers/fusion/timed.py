"""Times of written kernels on a GPU, which `tracekit fuse` keeps in a run's folder."""

from collections.abc import Mapping

import msgspec


class TimedKernel(msgspec.Struct, frozen=True):
    """Times of a kernel, timed alternately with the ops that it replaces. In training, the backward pass is
    included."""

    after_ns: float
    """Device time of the kernel with its fastest launch configuration."""
    before_ns: float
    """Device time of the ops."""
    roof_fraction: float
    """Bandwidth of the kernel relative to that of a copy; 0: its GEMM is compute-bound."""
    compiled_ns: float = 0.0
    """Device time of torch.compile's kernels for the same ops; 0: torch.compile failed."""
    launch: dict[str, int] = {}
    """The fastest launch configuration; empty: a library chooses."""


Timed = Mapping[str, TimedKernel]
"""Key of a planned kernel (`Planned.key`) -> its times on the GPU of the plan."""
