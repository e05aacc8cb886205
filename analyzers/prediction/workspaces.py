"""What a framework holds in device memory for its libraries, whatever the model and the batch."""

from tracekit.analyzers.hardware import GPU

_HOPPER = (9, 0)
_SINCE_HOPPER = 32 << 20
_BEFORE = (8 << 20) + (128 << 10)


_TRAINING = 2
"""cuBLAS handles of a training step: autograd runs the backward pass on a thread of its own, which has its own."""


def workspace_bytes(gpu: GPU, *, training: bool = False) -> int:
    """The workspaces of cuBLAS, which PyTorch allocates with the first product of each handle and keeps.

    Its defaults: 32 MiB from Hopper on, 8.125 MiB before. Of other vendors' libraries nothing is known: 0.
    """
    if gpu.vendor != "nvidia":
        return 0
    of_handle = _SINCE_HOPPER if gpu.compute_capability >= _HOPPER else _BEFORE
    return of_handle * (_TRAINING if training else 1)
