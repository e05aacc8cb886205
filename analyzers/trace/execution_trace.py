"""Read an execution trace of PyTorch (torch.profiler.ExecutionTraceObserver): ops with the ids of their tensors.

It belongs to a profiler trace of the same run, whose events have the same ids of calls ("Record function id").
Schemas 1.0 and 1.1 are read, with and without Chakra's form.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace.kineto.events import BROKEN
from tracekit.analyzers.trace.source import MAX_BYTES, Source, open_source

FORMAT = "PyTorch execution trace"
_SCHEMAS = ("1.0", "1.1")
_RECORD = (
    "Record one with the trace: torch.profiler.profile(execution_trace_observer="
    'ExecutionTraceObserver().register_callback("et.json")).'
)
_NONE = "<None>"
_TENSOR_FIELDS = 5
"""Fields of a tensor's value at least: its id, its storage's id, offset, elements and bytes of an element."""

Id = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Values(msgspec.Struct, gc=False):
    """Inputs or outputs of a call."""

    values: list[Any] = []
    shapes: list[Any] = []
    types: list[Any] = []
    strides: list[Any] = []


class Attribute(msgspec.Struct, gc=False):
    name: str = ""
    value: Any = None


class RecordedNode(msgspec.Struct, gc=False):
    """A node as written: with Chakra's form in `ctrl_deps`, `inputs` and `attrs`, otherwise in other fields."""

    id: Id
    name: str = ""
    ctrl_deps: Id = 0
    parent: Id = 0
    inputs: Values | list[Any] = []
    input_shapes: list[Any] = []
    input_types: list[Any] = []
    outputs: Values | list[Any] = []
    output_shapes: list[Any] = []
    output_types: list[Any] = []
    attrs: list[Attribute] = []
    rf_id: Id = 0
    seq_id: Id = -1
    op_schema: str = ""


class _File(msgspec.Struct):
    nodes: list[RecordedNode]
    schema: str = ""


class TensorValue(msgspec.Struct, frozen=True):
    """A tensor as a call saw it."""

    tensor: int
    storage: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str = ""


class ExecutedCall(msgspec.Struct, frozen=True):
    """A call of an op, or a range around calls."""

    id: int
    parent: int
    name: str
    record: int
    """Its "Record function id" in the profiler trace; 0: none."""
    sequence: int
    is_op: bool
    in_place: bool
    inputs: tuple[Any, ...]
    """A TensorValue, a tuple of them, or the value of each argument."""
    outputs: tuple[TensorValue, ...]


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is an execution trace."""
    return head.lstrip().startswith(b"{") and b'"schema"' in head[:4096] and b'"traceEvents"' not in head[:4096]


def read(path: str | Path, *, max_bytes: int = MAX_BYTES) -> tuple[ExecutedCall, ...]:
    """Return the calls of an execution trace in their order. Raises InputError for another kind of file, or a damaged
    one."""
    with open_source(path, max_bytes) as source:
        decoded, name = _decoded(source), source.name
    if not decoded.schema.startswith(_SCHEMAS):
        raise InputError(
            f"{name} has a schema that tracekit does not read.",
            f"It is {decoded.schema[:40]!r}; {' and '.join(_SCHEMAS)} are read.",
            "Record it with PyTorch 2.1 or later.",
        )
    if not decoded.nodes:
        raise InputError(
            f"The execution trace {name} contains no calls.", "Nothing ran while it was recorded.", _RECORD
        )
    calls = {each.id: _call(each) for each in decoded.nodes}
    return tuple(calls[number] for number in sorted(calls))


def _decoded(source: Source) -> _File:
    if not sniff(source.head):
        begins = f"It begins with {source.head[:16]!r}."
        raise InputError(f"{source.name} is not an execution trace.", begins, _RECORD)
    try:
        return source.decoded(msgspec.json.Decoder(_File).decode)
    except BROKEN as error:
        why = f"It ends early: {source.damage}." if source.damage else f"{error}."
        again = "The observer completes the file when it stops: stop it, or record the run again."
        raise InputError(f"The execution trace {source.name} is damaged.", why, again) from error


def _call(node: RecordedNode) -> ExecutedCall:
    attributes = {each.name: each.value for each in node.attrs}
    schema = str(attributes.get("op_schema", node.op_schema))
    operands = node.inputs if isinstance(node.inputs, Values) else _flat(node, "input")
    made = node.outputs if isinstance(node.outputs, Values) else _flat(node, "output")
    inputs, outputs = _arguments(operands), tensors_in(_arguments(made))
    kernel = bool(attributes.get("kernel_backend"))  # generated code: it may write any of its arguments
    return ExecutedCall(
        id=node.id,
        parent=node.ctrl_deps or node.parent,
        name=node.name,
        record=_number(attributes.get("rf_id", node.rf_id), 0),
        sequence=_number(attributes.get("seq_id", node.seq_id), -1),
        is_op=bool(schema) or kernel or node.name.startswith("aten::"),
        in_place=kernel or ("!)" in schema if schema else node.name.endswith("_")),
        inputs=inputs,
        outputs=tuple(tensors_in(inputs) if kernel else outputs),
    )


def _flat(node: RecordedNode, side: str) -> Values:
    values: list[Any] = getattr(node, f"{side}s")
    return Values(values, getattr(node, f"{side}_shapes"), getattr(node, f"{side}_types"))


def _number(value: Any, otherwise: int) -> int:
    return value if type(value) is int and abs(value) < 2**63 else otherwise


def _arguments(values: Values) -> tuple[Any, ...]:
    arguments = []
    for i, value in enumerate(values.values):
        of_type, shape, strides = (_element_at(each, i) for each in (values.types, values.shapes, values.strides))
        arguments.append(_argument(value, of_type, shape, strides))
    return tuple(arguments)


def _argument(value: Any, of_type: Any, shape: Any, strides: Any) -> Any:
    """Return a tensor, a tuple of tensors, or another value; None for one that was not given."""
    if not isinstance(of_type, str) or value == _NONE:
        return None
    if of_type.startswith("Tensor("):
        return _tensor(value, of_type, shape, strides)
    if of_type.startswith("GenericList[Tensor") and isinstance(value, list):
        kinds = of_type.removeprefix("GenericList[").removesuffix("]").split(",")
        each = (
            _tensor(one, _element_at(kinds, i), _element_at(shape, i), _element_at(strides, i))
            for i, one in enumerate(value)
        )
        return tuple(one for one in each if one is not None)
    return value


def _tensor(value: Any, of_type: Any, shape: Any, strides: Any) -> TensorValue | None:
    """Return a tensor; None for one that is undefined or damaged."""
    whole = isinstance(value, list) and len(value) >= _TENSOR_FIELDS and all(type(each) is int for each in value[:5])
    if not whole or not isinstance(of_type, str) or not value[0] or not _are_sizes(shape):
        return None
    dtype = of_type.removeprefix("Tensor(").removesuffix(")")
    known = tuple(strides) if _are_sizes(strides) and len(strides) == len(shape) else _contiguous(shape)
    device = value[-1] if isinstance(value[-1], str) else ""
    return TensorValue(value[0], value[1], value[2], tuple(shape), known, dtype, device)


def _are_sizes(shape: Any) -> bool:
    return isinstance(shape, list) and all(type(each) is int and 0 <= each < 2**63 for each in shape)


def _contiguous(shape: list[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def tensors_in(arguments: tuple[Any, ...]) -> list[TensorValue]:
    """Return the tensors among arguments, those of lists too."""
    tensors: list[TensorValue] = []
    for each in arguments:
        if isinstance(each, TensorValue):
            tensors.append(each)
        elif isinstance(each, tuple):
            tensors.extend(one for one in each if isinstance(one, TensorValue))
    return tensors


def _element_at(values: Any, i: int) -> Any:
    return values[i] if isinstance(values, list) and i < len(values) else None
