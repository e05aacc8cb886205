"""Shapes and types by torch's rules for broadcasting, reduction and type promotion."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from math import prod

import msgspec

from tracekit.analyzers.core import MOST_ELEMENTS, facts
from tracekit.analyzers.cost.ops.work import Precision


class Kind(IntEnum):
    """Categories of torch's type promotion, in promotion order."""

    BOOL = 0
    INTEGER = 1
    FLOAT = 2
    COMPLEX = 3


class DType(msgspec.Struct, frozen=True):
    """An element type: torch name and size."""

    name: str
    bytes: int
    kind: Kind

    @property
    def precision(self) -> Precision:
        """Precision of arithmetic on this type. Wide integers count as fp32."""
        return _PRECISIONS.get(self.name, "fp8" if self.name.startswith("float8") else "fp32")


_PRECISIONS: dict[str, Precision] = {
    "float64": "fp64",
    "complex128": "fp64",
    "float16": "fp16",
    "complex32": "fp16",
    "bfloat16": "bf16",
    "int8": "int8",
    "uint8": "int8",
    "float4_e2m1fn_x2": "fp8",
}

_FACTS = facts(__file__)

DTYPES: dict[str, DType] = {
    name: DType(name, size, Kind[kind.upper()])
    for kind, sizes in _FACTS["bytes"].items()
    for name, size in sizes.items()
}

BOOL = DTYPES["bool"]
INT32 = DTYPES["int32"]
INT64 = DTYPES["int64"]
FLOAT32 = DTYPES["float32"]

_ALIASES: dict[str, str] = _FACTS["aliases"]

# c10::ScalarType, whose numbers are how a trace records a `dtype=` argument.
_SCALAR_TYPES: list[str] = _FACTS["scalar_types"]
_LATER_SCALAR_TYPES: dict[str, str] = _FACTS["later_scalar_types"]


def find(name: str) -> DType | None:
    """Return the type with this name ("c10::Half", "long int", "torch.float16", "Float8_e4m3fn"); None if unknown."""
    plain = name.replace("c10::", "").replace("at::", "").removeprefix("torch.").lower()
    return DTYPES.get(_ALIASES.get(plain, plain))


def from_scalar_type(number: int) -> DType | None:
    """Return the type with this number in c10::ScalarType; None if its size is unknown."""
    if 0 <= number < len(_SCALAR_TYPES):
        return DTYPES[_SCALAR_TYPES[number]]
    name = _LATER_SCALAR_TYPES.get(str(number))
    return DTYPES[name] if name else None


Shape = tuple[int, ...]


class MalformedCall(ValueError):  # noqa: N818 (a condition of the input, never shown to a person)
    """The recorded inputs do not fit the op."""


class Tensor(msgspec.Struct, frozen=True):
    """A tensor among the inputs of an op."""

    shape: Shape
    dtype: DType
    strides: Shape | None = None
    """None: contiguous, or not recorded."""

    def __post_init__(self) -> None:
        if not all(type(size) is int and size >= 0 for size in self.shape) or self.numel > MOST_ELEMENTS:
            raise MalformedCall(f"{self.shape} is not a shape")

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.numel * self.dtype.bytes

    def like(self, shape: Sequence[int] | None = None, dtype: DType | None = None) -> "Tensor":
        return Tensor(self.shape if shape is None else tuple(shape), dtype or self.dtype)


def total_bytes(tensors: Iterable[Tensor | None]) -> int:
    return sum(tensor.bytes for tensor in tensors if tensor is not None)


def broadcast(*shapes: Shape) -> Shape:
    """Return the common shape. Raises MalformedCall if two sizes differ and neither is 1."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_broadcast_size(set(sizes) - {1}) for sizes in zip(*padded, strict=True))


def _broadcast_size(sizes: set[int]) -> int:
    if len(sizes) > 1:
        raise MalformedCall(f"sizes {sorted(sizes)} do not broadcast")
    return sizes.pop() if sizes else 1


def without_batch(inputs: Iterable[Tensor], result: Shape) -> list[Tensor]:
    """Return the inputs that are broadcast along the result's first dim, and so shared by all sequences."""
    first = result[0] if result else 1
    return [each for each in inputs if len(each.shape) < len(result) or (each.shape[:1] == (1,) and first > 1)]


def axes(rank: int, dims: Sequence[int] | None) -> frozenset[int]:
    """Return dims as non-negative axes; None and an empty list mean all, as in torch's reductions."""
    if not dims:
        return frozenset(range(rank))
    if any(not -max(rank, 1) <= dim < max(rank, 1) for dim in dims):
        raise MalformedCall(f"dims {list(dims)} of a tensor with {rank}")
    return frozenset(dim % rank for dim in dims) if rank else frozenset()


def reduced(shape: Shape, dims: Sequence[int] | None, keepdim: bool) -> Shape:
    """Return the shape after a reduction over dims."""
    gone = axes(len(shape), dims)
    sizes = (1 if axis in gone else size for axis, size in enumerate(shape) if keepdim or axis not in gone)
    return tuple(sizes)


def promote(tensors: Sequence[Tensor], scalars: Iterable[Kind] = ()) -> DType:
    """Return the type as torch.result_type does: tensors with dims decide, then 0-d tensors and Python numbers of a
    higher kind.

    A 0-d double among other tensors is assumed to be a wrapped Python number, because a trace does not distinguish
    them.
    """
    if not tensors:
        raise MalformedCall("no tensor among the inputs")
    result = _widest([tensor.dtype for tensor in tensors if tensor.shape])
    zero_dim = _widest([tensor.dtype for tensor in tensors if not tensor.shape])
    if result is None or (zero_dim is not None and zero_dim.kind > result.kind):
        wrapped = result is not None and zero_dim is not None and zero_dim.name == "float64"
        result = FLOAT32 if wrapped else zero_dim
    assert result is not None
    return FLOAT32 if max(scalars, default=Kind.BOOL) == Kind.FLOAT > result.kind else result


def _widest(dtypes: Sequence[DType]) -> DType | None:
    if not dtypes:
        return None
    kind = max(dtype.kind for dtype in dtypes)
    largest = max((dtype for dtype in dtypes if dtype.kind == kind), key=lambda dtype: dtype.bytes)
    names = {dtype.name for dtype in dtypes}
    return FLOAT32 if largest.bytes == 2 and {"float16", "bfloat16"} <= names else largest


def floating(dtype: DType) -> DType:
    """Return the type of a result that cannot be an integer: integers and bools become float32."""
    return dtype if dtype.kind >= Kind.FLOAT else FLOAT32
