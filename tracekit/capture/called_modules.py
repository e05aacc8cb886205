"""What the modules that a program calls hold and get: weights, their dtype, and the size of a batch."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tracekit.run import Run, require

if TYPE_CHECKING:
    from torch import nn


def _nothing(_: list[Any]) -> None: ...


class Called:
    """The modules of a program. Those within another module are counted with it.

    `hold` is called with the weights and buffers of each root before it runs.
    """

    def __init__(self, hold: Callable[[list[Any]], None] = _nothing) -> None:
        self._hold, self._seen = hold, set[int]()
        self.parameters = self.weight_bytes = self.buffer_bytes = 0
        self.batch_size = 0
        """First dimension of the first tensor that a module gets; 0 until one was seen."""
        self._bytes_of: dict[Any, int] = {}

    def add(self, root: "nn.Module") -> None:
        """Count a module that belongs to no module called before."""
        weights, buffers = self._new(root.parameters()), self._new(root.buffers())
        self._hold([*weights, *buffers])
        self.parameters += sum(each.numel() for each in weights)
        self.weight_bytes += sum(each.nbytes for each in weights)
        self.buffer_bytes += sum(each.nbytes for each in buffers)
        for each in weights:
            self._bytes_of[each.dtype] = self._bytes_of.get(each.dtype, 0) + each.nbytes

    def see(self, arguments: tuple[Any, ...]) -> None:
        """Take the batch size from the positional arguments of a call."""
        if not self.batch_size:
            shapes = (each.shape for each in arguments if isinstance(each, require("torch").Tensor))
            self.batch_size = next((int(shape[0]) for shape in shapes if shape), 0)

    @property
    def dtype(self) -> str:
        """The dtype of most weights, as the settings of a run name it; "" without weights or for other dtypes."""
        torch = require("torch")
        exact = torch.get_float32_matmul_precision() == "highest"
        names = {torch.float32: "fp32" if exact else "tf32", torch.float16: "fp16", torch.bfloat16: "bf16"}
        return names.get(max(self._bytes_of, key=self._bytes_of.__getitem__, default=None), "")

    def completed(self, run: Run) -> Run:
        """Return the run with what is known of its modules."""
        return replace(run, dtype=self.dtype, batch_size=self.batch_size)

    def _new(self, tensors: Any) -> list[Any]:
        new = [each for each in tensors if id(each) not in self._seen]
        self._seen.update(map(id, new))
        return new
