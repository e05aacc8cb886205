"""Does the work that DistributedDataParallel adds to a backward pass, on tensors without data.

torch's reducer is C++ and reads the tensors' data. This one copies each gradient into its bucket, reduces a bucket once
it is full, and copies the gradients back when all are reduced. Buckets have the sizes that torch's reducer fills.
"""

from typing import Any

from tracekit.analyzers.prediction.data_parallel.buckets import CAP_BYTES, FIRST_BYTES
from tracekit.capture.packages import require


class Reducer:
    """Reduces the gradients of a model among the ranks of the default group."""

    def __init__(self, parameters: list[Any], ranks: int) -> None:
        self._torch, self._ranks = require("torch"), ranks
        self._filling: list[Any] = []
        self._buckets: list[tuple[Any, list[Any]]] = []
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def _ready(self, parameter: Any) -> None:
        if not self._filling and not self._buckets:
            self._torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        self._filling.append(parameter)
        cap = CAP_BYTES if self._buckets else FIRST_BYTES
        if sum(each.grad.nbytes for each in self._filling) >= cap:
            self._reduce()

    def _reduce(self) -> None:
        members, self._filling = self._filling, []
        grads = [each.grad for each in members]
        flat = self._torch.empty(sum(each.numel() for each in grads), dtype=grads[0].dtype, device=grads[0].device)
        for part, grad in zip(flat.split([each.numel() for each in grads]), grads, strict=True):
            self._torch.mul(grad.view(-1), 1 / self._ranks, out=part)
        self._torch.distributed.all_reduce(flat, async_op=True)
        self._buckets.append((flat, members))

    def _finish(self) -> None:
        """Reduce the remaining gradients, and copy all gradients back."""
        if self._filling:
            self._reduce()
        for flat, members in self._buckets:
            for part, each in zip(flat.split([each.numel() for each in members]), members, strict=True):
                each.grad.view(-1).copy_(part)
        self._buckets = []
