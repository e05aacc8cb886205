"""CUDA graphs by hand: a function on fixed tensors is run into a graph once, and replayed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tracekit.analyzers.errors import TracekitError
from tracekit.capture.packages import require

_WARM_UP = 3
_HOST_COPY = "unless the CPU tensor is pinned"


class Replay:
    """The recorded function. Its result is the graph's own memory, which the next replay overwrites.

    It keeps the function, and with it the tensors whose addresses the graph holds.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        """Leaves the peak of device memory at what the function takes: a replay allocates nothing."""
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
            "The step cannot be recorded.",
            "It copies from the host's memory: the model makes a tensor there, as its attention mask is made.",
            "Compile it first (compile+cuda-graphs), or make the tensor on the device.",
        ) from error
