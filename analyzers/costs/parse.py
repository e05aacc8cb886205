"""Parses the signature of a call as a trace records it."""

import json
import re
from typing import Any

from tracekit.analyzers.costs.arguments import LIST
from tracekit.analyzers.costs.call import OpCall
from tracekit.analyzers.costs.tensors import MalformedCall

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
