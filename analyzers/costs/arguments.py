"""Typed access to the inputs of a recorded call. Inputs that do not fit raise MalformedCall."""

from tracekit.analyzers.costs import dtypes
from tracekit.analyzers.costs.call import OpCall
from tracekit.analyzers.costs.dtypes import FLOAT32, DType
from tracekit.analyzers.costs.tensors import MalformedCall, Shape, Tensor

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
