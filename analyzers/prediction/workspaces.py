"""Device memory that a framework allocates for its libraries, independent of model and batch."""

from tracekit.analyzers.hardware import GPU

_HOPPER = (9, 0)
_SINCE_HOPPER = 32 << 20
_BEFORE = (8 << 20) + (128 << 10)


_TRAINING = 2
"""Number of cuBLAS handles in a training step: autograd runs the backward pass on a separate thread with its own
handle."""


def workspace_bytes(gpu: GPU, *, training: bool = False) -> int:
    """Return the bytes of cuBLAS workspaces, which PyTorch allocates with the first GEMM of each handle and keeps.

    Defaults are 32 MiB from Hopper on and 8.125 MiB before. For other vendors the size is unknown: 0.
    """
    if gpu.vendor != "nvidia":
        return 0
    of_handle = _SINCE_HOPPER if gpu.compute_capability >= _HOPPER else _BEFORE
    return of_handle * (_TRAINING if training else 1)
