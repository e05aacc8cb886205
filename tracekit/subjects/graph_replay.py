"""Captures a function on fixed tensors in a CUDA graph once, and replays it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tracekit.analyzers.errors import TracekitError
from tracekit.capture.packages import require

_WARM_UP = 3
_HOST_COPY = "unless the CPU tensor is pinned"


class Replay:
    """A captured function. Its result is in the graph's own memory, which the next replay overwrites.

    It keeps a reference to the function, and so to the tensors whose addresses the graph uses.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        """Capture the function.

        Before, the peak of device memory is reset. It is then that of the function, because a replay allocates nothing.
        """
        self._function, cuda = function, require("torch.cuda")
        cuda.reset_peak_memory_stats()
        aside = cuda.Stream()
        aside.wait_stream(cuda.current_stream())
        with cuda.stream(aside):
            for _ in range(_WARM_UP):
                function()
        cuda.current_stream().wait_stream(aside)
        self._graph = cuda.CUDAGraph()
        with _explained(), cuda.graph(self._graph):
            self._result = function()

    def __call__(self) -> Any:
        self._graph.replay()
        return self._result


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if _HOST_COPY not in str(error):
            raise
        raise TracekitError(
            "The step cannot be captured in a CUDA graph.",
            "It copies from host memory, where the model creates a tensor, such as an attention mask.",
            "Compile it first (compile+cuda-graphs), or create the tensor on the device.",
        ) from error
