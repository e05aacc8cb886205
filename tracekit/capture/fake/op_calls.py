"""Describes an op call as the profiler does: shapes, types, strides and concrete inputs, by schema argument."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import torch

from tracekit.analyzers.core import facts
from tracekit.capture.fake.cuda_ops import launches
from tracekit.capture.fake.recording import Copies, OpCall

_TYPES = {getattr(torch, name): known for name, known in facts(__file__)["types"].items()}
TENSOR_TYPES: dict[torch.dtype, str] = {dtype: name for dtype, (name, _) in _TYPES.items()}
"""C++ type names that the profiler records, by torch dtype."""

_DTYPE_CODES: dict[torch.dtype, int] = {dtype: code for dtype, (_, code) in _TYPES.items()}
_FORMAT_CODES = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}
_LISTS = ("List[Tensor]", "List[Optional[Tensor]]")
_MASKS = (torch.bool, torch.uint8)
_NUMBER_TYPES = {bool: "bool", int: "long int", float: "double"}


@dataclass(frozen=True)
class Signature:
    """One op call as JSON texts, as in a trace."""

    name: str
    shapes: str
    dtypes: str
    strides: str
    values: str


@dataclass(frozen=True)
class _Argument:
    name: str
    is_tensor: bool
    is_tensors: bool
    default: Any


@cache
def _arguments(func: Any) -> tuple[_Argument, ...]:
    return tuple(
        _Argument(a.name, str(a.type) in ("Tensor", "Optional[Tensor]"), str(a.type) in _LISTS, a.default_value)
        for a in func._schema.arguments
    )


def signature(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature:
    """Return the signature of a call of an OpOverload, with defaults filled in."""
    arguments = _arguments(func)
    complete = [*args, *(kwargs.get(a.name, a.default) for a in arguments[len(args) :])]
    columns = zip(*(_entry(a, value) for a, value in zip(arguments, complete, strict=True)), strict=True)
    shapes, types, strides, values = (_json(column) for column in columns) if arguments else ("[]",) * 4
    return Signature(func._schema.name, shapes, types, strides, values)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _entry(argument: _Argument, value: Any) -> tuple[Any, str, Any, str]:
    """Return shape, type, stride and concrete value of one argument.

    The profiler does not record indices, a list whose tensors are optional; here, they are recorded like any list of
    tensors, with [] for a missing one, unless one is a mask, whose shape does not determine the number of selected
    elements.
    """
    if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
        return [], "Sparse", [], ""  # a cost by this shape would be that of a dense tensor
    if isinstance(value, torch.Tensor):
        return list(value.shape), TENSOR_TYPES[value.dtype], list(value.stride()), ""
    if argument.is_tensors and not any(t is not None and t.dtype in _MASKS for t in value):
        return _each(torch.Tensor.size, value), "TensorList", _each(torch.Tensor.stride, value), ""
    if argument.is_tensor and type(value) in _NUMBER_TYPES:
        return [], _NUMBER_TYPES[type(value)], [], ""
    kind, text = _scalar(value)
    return [], kind, [], text


def _each(sizes: Callable[[torch.Tensor], Sequence[int]], tensors: Sequence[torch.Tensor | None]) -> list[list[int]]:
    return [[] if tensor is None else list(sizes(tensor)) for tensor in tensors]


def _scalar(value: Any) -> tuple[str, str]:
    """Return type and value of a non-tensor; ("", "") for what the profiler does not record (strings, devices,
    generators)."""
    if isinstance(value, (bool, int, float)):
        return "Scalar", _number(value)
    if isinstance(value, torch.dtype):
        return "Scalar", str(_DTYPE_CODES[value])
    if isinstance(value, torch.memory_format):
        return "Scalar", str(_FORMAT_CODES[value])
    if isinstance(value, torch.layout):
        return "Scalar", "0"
    if isinstance(value, (list, tuple)) and all(isinstance(v, (bool, int, float)) for v in value):
        return "ScalarList", f"[{', '.join(_number(v) for v in value)}]"
    return "", ""


def _number(value: bool | float) -> str:
    """Format a number as C++ does: 17 significant digits, and a point after a whole float."""
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}." if abs(value) < 2**63 else f"{value:.17g}"
    return f"{value:.17g}" if isinstance(value, float) else str(value)


def op_call(
    func: Any, key: Signature, inputs: list[torch.Tensor], outputs: list[torch.Tensor], copies: Copies = ""
) -> OpCall:
    """Return the description of a call."""
    return OpCall(
        name=key.name,
        shapes=key.shapes,
        dtypes=key.dtypes,
        strides=key.strides,
        values=key.values,
        launches=launches(func, inputs, outputs),
        copies=copies,
        element_type=element_type(inputs or outputs),
        read_bytes=_bytes(inputs),
        write_bytes=_bytes(outputs),
        elements=sum(elements_of(tensor) for tensor in outputs or inputs),
    )


def element_type(tensors: list[torch.Tensor]) -> str:
    """Return the profiler's name of the first tensor's type; "" without tensors."""
    return TENSOR_TYPES[tensors[0].dtype] if tensors else ""


def tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors among `values`, including those in lists."""
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors.extend(item for item in value if isinstance(item, torch.Tensor))
    return tensors


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(bytes_of(tensor) for tensor in tensors)


_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the dense tensors that hold the values: those of a sparse tensor, the tensor inside torch.func's wrappers,
    or the tensor itself."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    if tensor.layout is torch.sparse_coo:
        return [tensor._values(), tensor._indices()]
    if tensor.layout in _COMPRESSED:
        return [tensor.values(), *(getattr(tensor, name)() for name in _COMPRESSED[tensor.layout])]
    return [tensor]


def storages(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    return [each.untyped_storage() for each in parts(tensor)]


def elements_of(tensor: torch.Tensor) -> int:
    """Return the number of stored values."""
    return parts(tensor)[0].numel()


def bytes_of(tensor: torch.Tensor) -> int:
    return sum(each.numel() * each.element_size() for each in parts(tensor))
