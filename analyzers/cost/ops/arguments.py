"""Typed access to the inputs of a recorded call. Inputs that do not fit raise MalformedCall."""

import json
import re
from collections.abc import Iterable
from typing import Any

from tracekit.analyzers.cost.ops import tensors as dtypes
from tracekit.analyzers.cost.ops.call import Access, Cost, Family, OpCall
from tracekit.analyzers.cost.ops.tensors import FLOAT32, DType, MalformedCall, Shape, Tensor, total_bytes
from tracekit.analyzers.cost.ops.work import Work

LIST = "TensorList"


class Arguments:
    """The inputs of one call, by their position in the op's schema."""

    def __init__(self, call: OpCall) -> None:
        if not len(call.shapes) == len(call.dtypes) >= len(call.values):
            raise MalformedCall("shapes, types and values differ in number")
        self.name = call.name
        self._call = call

    def __len__(self) -> int:
        return len(self._call.shapes)

    def optional(self, index: int) -> Tensor | None:
        """Return input `index` if it is a tensor, else None."""
        if not 0 <= index < len(self):
            return None
        dtype = dtypes.find(self._call.dtypes[index])
        return Tensor(_shape(self._call.shapes[index]), dtype, self._strides(index)) if dtype else None

    def _strides(self, index: int) -> Shape | None:
        """Return the recorded strides; None if there are none or they do not fit the shape."""
        strides = self._call.strides[index] if index < len(self._call.strides) else None
        return _steps(strides, self._call.shapes[index])

    def tensor(self, index: int) -> Tensor:
        tensor = self.optional(index)
        if tensor is None:
            raise MalformedCall(f"{self.name}: input {index} is not a tensor")
        return tensor

    def named(self, index: int) -> Tensor | None:
        """Return tensor `index`; None for -1, which says that the op has no such input."""
        return self.tensor(index) if index >= 0 else None

    def every(self, start: int = 0, stop: int | None = None) -> list[Tensor]:
        """Return the tensors among the inputs in [start, stop)."""
        stop = len(self) if stop is None else min(stop, len(self))
        return [tensor for index in range(start, stop) if (tensor := self.optional(index)) is not None]

    def is_list(self, index: int) -> bool:
        return 0 <= index < len(self) and self._call.dtypes[index].startswith(LIST)

    def tensors(self, index: int) -> list[Tensor]:
        """Return the list of tensors at `index`. Traces do not record its element type: float32 unless parse_call was
        given it."""
        if not self.is_list(index):
            raise MalformedCall(f"{self.name}: input {index} is not a list of tensors")
        element = dtypes.find(self._call.dtypes[index].removeprefix(LIST).strip("[]")) or FLOAT32
        shapes = self._call.shapes[index]
        if not isinstance(shapes, tuple):
            raise MalformedCall(f"{shapes!r} is not a list of shapes")
        strides = self._call.strides[index] if index < len(self._call.strides) else ()
        if not isinstance(strides, tuple) or len(strides) != len(shapes):
            return [Tensor(_shape(shape), element) for shape in shapes]
        return [
            Tensor(_shape(shape), element, _steps(steps, shape)) for shape, steps in zip(shapes, strides, strict=True)
        ]

    def is_scalar(self, index: int) -> bool:
        return 0 <= index < len(self) and self._call.dtypes[index] == "Scalar"

    def value(self, index: int) -> object:
        """Return the recorded value; None if there is none."""
        return self._call.values[index] if 0 <= index < len(self._call.values) else None

    def flag(self, index: int, default: bool = False) -> bool:
        value = self.value(index)
        return bool(value) if isinstance(value, int) else default

    def integer(self, index: int, default: int | None = None) -> int:
        value = self.value(index)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if default is None:
            raise MalformedCall(f"{self.name}: input {index} has no recorded value")
        return default

    def number(self, index: int, default: float) -> float:
        value = self.value(index)
        return value if isinstance(value, int | float) else default

    def integers(self, index: int) -> tuple[int, ...] | None:
        """Return a list of ints, or one int as a list; None if not recorded."""
        value = self.value(index)
        values = (value,) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(values, tuple) or not all(type(item) is int for item in values):
            return None
        return values

    def dtype(self, index: int) -> DType | None:
        """Return the value of a `dtype=` argument."""
        value = self.value(index)
        if isinstance(value, str):
            return dtypes.find(value)
        return dtypes.from_scalar_type(value) if type(value) is int else None


def _steps(strides: object, shape: object) -> Shape | None:
    """Return the strides if they fit the shape; else None."""
    fits = isinstance(strides, tuple) and isinstance(shape, tuple) and len(strides) == len(shape)
    return strides if fits and isinstance(strides, tuple) and all(type(step) is int for step in strides) else None


def _shape(dims: object) -> Shape:
    if not isinstance(dims, tuple):
        raise MalformedCall(f"{dims!r} is not a shape")
    return dims


def moves(
    family: Family,
    flops: int,
    reads: Iterable[Tensor | None],
    writes: Iterable[Tensor | None],
    dtype: DType,
    weight: Tensor | None = None,
    work: Work | None = None,
    access: Access = "linear",
    row: int = 0,
    run: int = 0,
    shared: Iterable[Tensor | None] = (),
    shared_results: Iterable[Tensor | None] = (),
    estimated: bool = False,
) -> Cost:
    """Return the cost of reading and writing whole tensors with arithmetic in `dtype`. `shared` are the tensors of
    `reads`, other than the weight, that do not grow with the batch; `shared_results` those of `writes`."""
    return Cost(
        flops=flops,
        read_bytes=total_bytes(reads),
        write_bytes=total_bytes(writes),
        family=family,
        precision=dtype.precision,
        weight_bytes=weight.bytes if weight else 0,
        work=work,
        access=access,
        row=row,
        run=run,
        shared_read=total_bytes(shared),
        shared_write=total_bytes(shared_results),
        estimated=estimated,
    )


_INTEGER = re.compile(r"[+-]?\d{1,20}")
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)")


def parse_call(
    name: str,
    shapes_json: str,
    dtypes_json: str,
    values_json: str = "",
    list_dtype: str | None = None,
    list_elements: int | None = None,
    strides_json: str = "",
) -> OpCall:
    """Return the call that a trace records as JSON text ("" if not recorded). Raises MalformedCall.

    torch's profiler records no element type for tensor lists, and no shapes ([]) for lists with more than 30 tensors.
    `list_dtype` and `list_elements` (the summed elements of such a list) replace them.
    """
    shapes, dtypes, values, strides = map(_array, (shapes_json, dtypes_json, values_json, strides_json))
    if len(shapes) != len(dtypes) or not all(isinstance(dtype, str) for dtype in dtypes):
        raise MalformedCall(f"{name}: {dtypes_json} are not the types of {shapes_json}")
    if list_elements is not None:
        shapes = [
            [[list_elements]] if dtype == LIST and not dims else dims
            for dims, dtype in zip(shapes, dtypes, strict=True)
        ]
    if list_dtype:
        dtypes = [f"{LIST}[{list_dtype}]" if dtype == LIST else dtype for dtype in dtypes]
    return OpCall(
        name, tuple(map(_frozen, shapes)), tuple(dtypes), tuple(map(_decoded, values)), tuple(map(_frozen, strides))
    )


def _array(text: str) -> list[Any]:
    try:
        array = json.loads(text) if text else []
    except (ValueError, RecursionError) as error:
        raise MalformedCall(f"{text[:80]!r} is not JSON") from error
    if not isinstance(array, list):
        raise MalformedCall(f"{text[:80]!r} is not an array")
    return array


def _frozen(item: Any, depth: int = 4) -> Any:
    if not isinstance(item, list):
        return item
    if not depth:
        raise MalformedCall("inputs nest too deep")
    return tuple(_frozen(inner, depth - 1) for inner in item)


def _decoded(value: Any) -> Any:
    """Return a concrete input as a Python value: "[-1, 512]" -> (-1, 512), "True" -> True, "0." -> 0.0, "" -> None."""
    if not isinstance(value, str):
        return _frozen(value)
    text = value.strip()
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip()
        return tuple(_scalar(item.strip()) for item in inner.split(",")) if inner else ()
    return _scalar(text)


def _scalar(text: str) -> bool | int | float | str | None:
    if text in ("", "None"):
        return None
    if text in ("True", "False"):
        return text == "True"
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
