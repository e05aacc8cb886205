"""The inputs of an op call as one line of text, and back to what a trace records.

bf16[8,768] bf16[768,2304]@1,768 True +2      a tensor, one that is not contiguous with its strides, a value, two absent
{768,2304;2304} fp32[1]                       a list of tensors, by their shapes
"""

import json
from typing import Any

TYPES = {
    "bf16": "c10::BFloat16",
    "fp16": "c10::Half",
    "fp32": "float",
    "fp64": "double",
    "e4m3": "c10::Float8_e4m3fn",
    "i64": "long int",
    "u64": "long unsigned int",
    "i32": "int",
    "i8": "signed char",
    "u8": "unsigned char",
    "bool": "bool",
}
_SHORT = {name: short for short, name in TYPES.items()}
_UNKNOWN = "?"
Input = tuple[Any, str, str, list[int]]
"""Shape, type, value, strides."""


def written(shapes: list[Any], types: list[str], values: list[str], strides: list[list[int]]) -> str:
    """Return one line with the inputs of a call as torch's profiler records them."""
    count = len(shapes)
    values, strides = values + [""] * (count - len(values)), strides + [[]] * (count - len(strides))
    tokens = [_token(*inputs) for inputs in zip(shapes, types, values, strides, strict=False)]
    kept = len(tokens)
    while kept and tokens[kept - 1] == "-":
        kept -= 1
    return " ".join(tokens[:kept] + [f"+{count - kept}"] * (kept < count))


def read(text: str) -> tuple[str, str, str, str]:
    """Return shapes, types, values and strides as the JSON text of a trace."""
    inputs = [tensor for token in text.split() for tensor in _inputs(token)]
    columns = zip(*inputs, strict=True) if inputs else [[]] * 4
    shapes, types, values, strides = (json.dumps(list(column), separators=(",", ":")) for column in columns)
    return shapes, types, values, strides


def contiguous(shape: list[int]) -> list[int]:
    """Return the strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


def _token(shape: Any, kind: str, value: str, strides: list[int]) -> str:
    if kind in _SHORT:
        dense = all(a == b or n == 1 for a, b, n in zip(strides, contiguous(shape), shape, strict=False))
        return f"{_SHORT[kind]}[{_joined(shape)}]" + ("" if dense else f"@{_joined(strides)}")
    if kind.startswith("TensorList"):
        return "{" + ";".join(_joined(one) for one in shape) + "}"
    return value.replace(" ", "") or (_UNKNOWN if kind else "-")


def _joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")] if text else []


def _inputs(token: str) -> list[Input]:
    if token.startswith("+"):
        return [([], "", "", [])] * int(token[1:])
    if token.startswith("{"):
        shapes = [_numbers(one) for one in token[1:-1].split(";")] if len(token) > 2 else []
        return [(shapes, "TensorList", "", [])]
    kind, bracket, rest = token.partition("[")
    if bracket and kind in TYPES:
        shape, _, strides = rest.partition("]")
        numbers = _numbers(shape)
        return [(numbers, TYPES[kind], "", _numbers(strides[1:]) or contiguous(numbers))]
    if token == "-":
        return [([], "", "", [])]
    return [([], "ScalarList" if token.startswith("[") else "Scalar", "" if token == _UNKNOWN else token, [])]
