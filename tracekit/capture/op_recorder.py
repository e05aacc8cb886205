"""Records every op that a run on fake tensors dispatches, as CUDA would dispatch it."""

from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tracekit.capture.cuda_attention import AttentionChoice, in_cuda_layout
from tracekit.capture.cuda_ops import aten, is_recorded
from tracekit.capture.live_memory import LiveMemory
from tracekit.capture.op_calls import element_type, op_call, tensors_in
from tracekit.capture.op_signature import Signature, signature
from tracekit.capture.recording import BackwardNode, Range, Recording

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd  # type: ignore[attr-defined]
_NO_SEQUENCE = 2**64 - 1
"""What gradient accumulation carries."""


class OpRecorder(TorchDispatchMode):
    """Records what is dispatched while it is entered, and the ranges pushed; `start` begins a new recording.

    A number read back to the host is taken for 1 (True): fake tensors hold no data, and what models ask, such as
    whether a mask is all ones, has that answer for the inputs that tracekit makes.
    """

    def __init__(self, attention: AttentionChoice) -> None:
        super().__init__()
        self.memory = LiveMemory()
        self.recording = Recording()
        self._attention = attention
        self._index: dict[tuple[Signature, str], int] = {}
        self._open: list[int] = []
        self._last_sequence = -1
        self._last_node: object = None

    def start(self) -> Recording:
        """A new recording, which is filled from now on."""
        self.recording, self._index, self._open, self._last_node = Recording(), {}, [], None
        self._last_sequence = _latest_sequence()
        self.memory.peak_bytes = self.memory.live_bytes
        return self.recording

    def push(self, name: str) -> None:
        """Opens a range inside those that are open."""
        self._open.append(len(self.recording.ranges))
        slot = self._slot(-1)
        self.recording.ranges.append(Range(name, slot, slot))

    def pop(self) -> None:
        """Closes the range opened last."""
        index = self._open.pop()
        opened = self.recording.ranges[index]
        self.recording.ranges[index] = Range(opened.name, opened.opens, self._slot(-1))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _is_composite(func):
            with self:
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        result = _one(args[0].dtype) if func is aten._local_scalar_dense.default else func(*args, **kwargs)
        result = in_cuda_layout(func, result)
        if func.namespace == "profiler":
            self._record_function(func, args)
        elif is_recorded(func):
            outputs = tensors_in(result if isinstance(result, (tuple, list)) else (result,))
            self.memory.add(outputs)
            self._append(*self._attention.as_cuda(func, args, kwargs), outputs)
        return result

    def _record_function(self, func: Any, args: Any) -> None:
        """torch.profiler.record_function, of a model or of torch itself, is a range too."""
        if "_enter" in func._schema.name:
            self.push(args[0])
        else:
            self.pop()

    def _append(self, func: Any, args: Any, kwargs: Any, outputs: list[torch.Tensor]) -> None:
        inputs = tensors_in((*args, *kwargs.values()))
        key = (signature(func, args, kwargs), element_type(inputs))
        if key not in self._index:
            self._index[key] = len(self.recording.calls)
            self.recording.calls.append(op_call(func, key[0], inputs, outputs))
        self._slot(self._index[key])

    def _slot(self, call: int) -> int:
        recording = self.recording
        sequence, node = self._autograd() if call >= 0 else (-1, -1)
        recording.call.append(call)
        recording.sequence.append(sequence)
        recording.node.append(node)
        return len(recording.call) - 1

    def _autograd(self) -> tuple[int, int]:
        """(sequence of the node that this op creates, index of the node that it runs for)."""
        node = torch._C._current_autograd_node()
        if node is None:
            latest = _latest_sequence()
            created, self._last_sequence = latest != self._last_sequence, latest
            return (latest if created else -1), -1
        if node is not self._last_node:
            self._last_node = node
            sequence = node._sequence_nr()
            self.recording.nodes.append(BackwardNode(node.name(), -1 if sequence == _NO_SEQUENCE else sequence))
        return -1, len(self.recording.nodes) - 1


@cache
def _is_composite(func: Any) -> bool:
    """Whether an op is made of other ops: in inference mode nothing above has taken it apart."""
    return func.namespace == "aten" and func.has_kernel_for_dispatch_key(_COMPOSITE)


def _latest_sequence() -> int:
    """The sequence number of the autograd node created last."""
    return torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]


def _one(dtype: torch.dtype) -> float | bool:
    return True if dtype == torch.bool else 1.0 if dtype.is_floating_point else 1
