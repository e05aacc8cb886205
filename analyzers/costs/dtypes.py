"""Element types and all names that traces use for them."""

from enum import IntEnum

import msgspec

from tracekit.analyzers.costs.work import Precision


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

_SIZES: dict[Kind, dict[str, int]] = {
    Kind.BOOL: {"bool": 1},
    Kind.INTEGER: {
        "uint8": 1,
        "int8": 1,
        "int16": 2,
        "uint16": 2,
        "int32": 4,
        "uint32": 4,
        "int64": 8,
        "uint64": 8,
    },
    Kind.FLOAT: {
        "float8_e4m3fn": 1,
        "float8_e4m3fnuz": 1,
        "float8_e5m2": 1,
        "float8_e5m2fnuz": 1,
        "float8_e8m0fnu": 1,
        "float4_e2m1fn_x2": 1,
        "float16": 2,
        "bfloat16": 2,
        "float32": 4,
        "float64": 8,
    },
    Kind.COMPLEX: {"complex32": 4, "complex64": 8, "complex128": 16},
}

DTYPES: dict[str, DType] = {
    name: DType(name, size, kind) for kind, sizes in _SIZES.items() for name, size in sizes.items()
}

BOOL = DTYPES["bool"]
INT32 = DTYPES["int32"]
INT64 = DTYPES["int64"]
FLOAT32 = DTYPES["float32"]

_ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "byte": "uint8",
    "unsigned char": "uint8",
    "quint8": "uint8",
    "char": "int8",
    "signed char": "int8",
    "qint8": "int8",
    "short": "int16",
    "short int": "int16",
    "unsigned short": "uint16",
    "short unsigned int": "uint16",
    "int": "int32",
    "qint32": "int32",
    "unsigned int": "uint32",
    "long": "int64",
    "long int": "int64",
    "long long": "int64",
    "unsigned long": "uint64",
    "long unsigned int": "uint64",
    "complexhalf": "complex32",
    "complex<half>": "complex32",
    "complexfloat": "complex64",
    "complex<float>": "complex64",
    "complexdouble": "complex128",
    "complex<double>": "complex128",
}

# c10::ScalarType, whose numbers are how a trace records a `dtype=` argument.
_SCALAR_TYPES = (
    *("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"),
    *("complex32", "complex64", "complex128", "bool", "int8", "uint8", "int32", "bfloat16"),
)
_LATER_SCALAR_TYPES = {
    23: "float8_e5m2",
    24: "float8_e4m3fn",
    25: "float8_e5m2fnuz",
    26: "float8_e4m3fnuz",
    27: "uint16",
    28: "uint32",
    29: "uint64",
    44: "float8_e8m0fnu",
    45: "float4_e2m1fn_x2",
}


def find(name: str) -> DType | None:
    """Return the type with this name ("c10::Half", "long int", "torch.float16", "Float8_e4m3fn"); None if unknown."""
    plain = name.replace("c10::", "").replace("at::", "").removeprefix("torch.").lower()
    return DTYPES.get(_ALIASES.get(plain, plain))


def from_scalar_type(number: int) -> DType | None:
    """Return the type with this number in c10::ScalarType; None if its size is unknown."""
    if 0 <= number < len(_SCALAR_TYPES):
        return DTYPES[_SCALAR_TYPES[number]]
    name = _LATER_SCALAR_TYPES.get(number)
    return DTYPES[name] if name else None
