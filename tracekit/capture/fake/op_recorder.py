"""Records every op that a run on fake tensors dispatches, as CUDA would dispatch it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tracekit.analyzers.cost import Kind, Message
from tracekit.capture.emitted_ranges import Emitter
from tracekit.capture.fake.cuda_calls import AttentionChoice, norm_as_cuda
from tracekit.capture.fake.cuda_ops import aten, check, check_is_op, decomposed, is_recorded, reads_back, workspace
from tracekit.capture.fake.op_calls import Signature, element_type, op_call, signature, tensors_in
from tracekit.capture.fake.op_graph import TensorNumbers, numbers_in
from tracekit.capture.fake.recording import BackwardNode, Copies, RecordingBuilder
from tracekit.capture.fake.tensors import HostTensors, LiveMemory, as_real

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_NO_SEQUENCE = 2**64 - 1
"""Sequence number of an autograd node that accumulates gradients."""


class OpRecorder(TorchDispatchMode):
    """Records the ops that are dispatched while it is entered; `start` begins a new recording.

    A number read back to the host is 1 (True): fake tensors contain no data. This answers what models ask, such as
    whether a mask is all ones, correctly for the inputs that tracekit makes.
    """

    supports_higher_order_operators = True

    def __init__(self, attention: AttentionChoice, host_tensors: HostTensors) -> None:
        super().__init__()
        self.memory = LiveMemory()
        self._attention, self._host_tensors = attention, host_tensors
        self._silent, self._creates = False, -1
        self.start()

    def start(self) -> RecordingBuilder:
        """Begin a new recording and return its builder."""
        self._builder, self._index = RecordingBuilder(), dict[tuple[Signature, str, Copies], int]()
        self._numbers = TensorNumbers()
        self._builder.recording.shapes = self._numbers.shapes
        self._communicated = Communicated()
        self._last_sequence = _latest_sequence()
        self._last_node: object = None
        self.memory.peak_bytes = self.memory.live_bytes
        builder = self._builder
        self.memory.told = lambda block, size: builder.move(block, size, self.memory.live_bytes)
        return builder

    def finish(self) -> None:
        """End the recording. Memory that is freed from now on is not part of it."""
        self._builder.recording.peak_bytes = self.memory.peak_bytes
        self.memory.told = lambda _block, _size: None

    @property
    def emitter(self) -> Emitter:
        """The emitter of ranges into the current recording."""
        return _Ranges(lambda: self._builder)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Record nothing in this block, whose ops `record` then adds as a single op."""
        before, self._silent = self._silent, True
        try:
            yield
        finally:
            self._silent, self._last_sequence = before, _latest_sequence()

    def record(self, func: Any, args: tuple[Any, ...], outputs: Sequence[torch.Tensor], sequence: int = -1) -> None:
        """Record a call that CUDA would make, but that was not dispatched. `sequence` is that of its autograd node."""
        self._creates = sequence
        self._record(func, args, {}, list(outputs))
        self._creates = -1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return func(*args)  # torch asks for it more often than for anything else
        kwargs = kwargs or {}
        check_is_op(func)
        if _is_composite(func):
            with self:
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        if is_split(types):
            return NotImplemented
        result = self._result(func, args, kwargs)
        if self._silent:
            return result
        if func.namespace == "profiler":
            self._record_function(func, args)
        elif is_recorded(func):
            self._record(func, args, kwargs, tensors_in(result if isinstance(result, (tuple, list)) else (result,)))
        return result

    def _result(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of the call as CUDA would."""
        result = _one(args[0].dtype) if func is aten._local_scalar_dense.default else func(*args, **kwargs)
        return as_real(func, args, result, self._attention.follows_query(func, args, kwargs))

    def _record(self, func: Any, args: Any, kwargs: Any, outputs: list[torch.Tensor]) -> None:
        inputs = tensors_in((*args, *kwargs.values()))
        check(func, [*inputs, *outputs])
        moves = func is aten._to_copy.default and inputs[0] in self._host_tensors
        self.memory.add(outputs)
        copies: Copies = "to device" if moves else "to host" if reads_back(func, inputs) else ""
        self._append(func, args, kwargs, outputs, copies)

    def _record_function(self, func: Any, args: Any) -> None:
        """Record torch.profiler.record_function, called by a model or by torch itself, as a range."""
        if "_enter" in func._schema.name:
            self._builder.push(args[0])
        else:
            self._builder.pop()

    def _append(self, func: Any, args: Any, kwargs: Any, outputs: list[torch.Tensor], copies: Copies) -> None:
        """Append the call, after the calls that it makes on CUDA before its own kernel."""
        first, remains, args = decomposed(func, args, outputs)
        sequence, node = self._autograd()
        for inner, read, written in first:
            self._append_one(inner, read, {}, written, "", (-1, node))
        held = workspace(func, args, outputs)
        self.memory.add(held)
        self._append_one(remains, args, kwargs if remains is func else {}, outputs, copies, (sequence, node))

    def _append_one(
        self,
        func: Any,
        args: Any,
        kwargs: Any,
        outputs: list[torch.Tensor],
        copies: Copies,
        autograd: tuple[int, int],
    ) -> None:
        read = self._numbers.read(tensors_in((*args, *kwargs.values())))
        tensors = read, self._numbers.written(outputs), numbers_in(args)
        func, args, kwargs = norm_as_cuda(*self._attention.as_cuda(func, args, kwargs))
        inputs = tensors_in((*args, *kwargs.values()))
        waits, message = self._communicated.latest(inputs), message_of(func, args, outputs)
        calls, key = self._builder.recording.calls, (signature(func, args, kwargs), element_type(inputs), copies)
        if key not in self._index:
            self._index[key] = len(calls)
            copied = copies_of_fsdp(func, args)
            calls.append(replace(op_call(func, key[0], copied or inputs, copied or outputs, copies), message=message))
        slot = self._builder.append(self._index[key], *autograd, tensors, waits)
        if message:
            self._communicated.add([*inputs, *outputs], slot)
            self._builder.recording.collectives.append(slot)

    def _autograd(self) -> tuple[int, int]:
        """Return the sequence number of the node that this op creates, and the index of the node for which it runs."""
        node = torch._C._current_autograd_node()
        if node is None:
            latest = _latest_sequence()
            created, self._last_sequence = latest != self._last_sequence, latest
            return (latest if created else self._creates), -1
        nodes = self._builder.recording.nodes
        if node is not self._last_node:
            self._last_node = node
            sequence = node._sequence_nr()
            nodes.append(BackwardNode(node.name(), -1 if sequence == _NO_SEQUENCE else sequence))
        return -1, len(nodes) - 1


class _Ranges:
    def __init__(self, builder: Callable[[], RecordingBuilder]) -> None:
        self._builder = builder

    def push(self, name: str) -> None:
        self._builder().push(name)

    def pop(self) -> None:
        self._builder().pop()


@cache
def _is_composite(func: Any) -> bool:
    """Return whether an op consists of other ops. In inference mode, they are dispatched instead of it.

    An op that PyTorch decomposes, but that has GPU kernels, such as silu_backward, is recorded as one op.
    """
    compiled = torch._C._dispatch_has_kernel_for_dispatch_key  # an op that only Python decomposes has none
    if func.namespace != "aten" or compiled(func.name(), "CPU"):
        return False
    return bool(compiled(func.name(), "CompositeImplicitAutograd"))


def _latest_sequence() -> int:
    """Return the sequence number of the latest autograd node."""
    return torch.autograd._get_sequence_nr() - 1


def _one(dtype: torch.dtype) -> float | bool:
    return True if dtype == torch.bool else 1.0 if dtype.is_floating_point else 1


_KINDS: dict[str, Kind] = {
    "c10d::allreduce_": "all-reduce",
    "c10d::_allgather_base_": "all-gather",
    "c10d::_reduce_scatter_base_": "reduce-scatter",
    "_c10d_functional::all_reduce": "all-reduce",
    "_c10d_functional::all_gather_into_tensor": "all-gather",
    "_c10d_functional::reduce_scatter_tensor": "reduce-scatter",
}


class Communicated:
    """The collectives whose results lie in each storage."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}

    def add(self, tensors: list[torch.Tensor], slot: int) -> None:
        for tensor in tensors:
            self._slots[tensor.untyped_storage()._cdata] = slot

    def latest(self, tensors: list[torch.Tensor]) -> int:
        """Return the slot of the latest collective whose result one of the tensors holds; -1: none."""
        if not self._slots:
            return -1
        return max((self._slots.get(each.untyped_storage()._cdata, -1) for each in tensors), default=-1)


def message_of(func: Any, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> Message | None:
    """Return the message of a collective among all ranks; None for other ops."""
    kind = _KINDS.get(func._schema.name)
    if kind is None:
        return None
    sizes = [sum(each.nbytes for each in tensors) for tensors in (tensors_in(args), outputs)]
    buffers = max(sizes) if "functional" in func.namespace else max(each.nbytes for each in tensors_in(args))
    return Message(kind, buffers, torch.distributed.get_world_size())


def copies_of_fsdp(func: Any, args: tuple[Any, ...]) -> list[torch.Tensor] | None:
    """Return the tensors that an op of FSDP copies, without the larger buffers; None for other ops."""
    return tensors_in(args[:1]) if func.namespace == "fsdp" else None


def is_split(types: Any) -> bool:
    """Return whether an op has tensors of several ranks. The ops on this rank's part are dispatched next."""
    return any(each.__name__ in ("DTensor", "AsyncCollectiveTensor") for each in types)
