"""The names of tracekit's ranges. Capture writes them (NVTX and record_function), and analysis recognizes them.

step: 3
phase: decode
module: transformer.h.0.attn (GPT2Attention)
frame: train.py(12): main
"""

import json
import math
import re
from typing import Any

from tracekit.analyzers.core import MOST_ELEMENTS

ROOT = "(model)"
"""The path given to the outermost module; no attribute can have this name."""

PROFILER_STEP = re.compile(r"ProfilerStep#\d+")
"""The name of torch.profiler's own range around a step."""
_RANGE = re.compile(r"(?P<kind>step|phase|module): (?P<path>\S+)(?: \((?P<type>.+)\))?\Z")


def step(index: int) -> str:
    return f"step: {index}"


def phase(name: str) -> str:
    return f"phase: {name}"


def module(path: str, type_name: str) -> str:
    return f"module: {path or ROOT} ({type_name})"


_LONGEST = 1000
"""Longest path, and longest name of a function, in characters."""

_FRAME = re.compile(rf"frame: ([^\n]{{1,{_LONGEST}}}\(\d{{1,9}}\): [^\n]{{1,{_LONGEST}}})")


def frame(path: str, line: int, function: str) -> str:
    """Return the name of a range around a call that can wait for the device, made on this line of the program."""
    return f"frame: {path[-_LONGEST:]}({line}): {function[:_LONGEST]}"


def python_frame(name: str) -> str:
    """Return the line in the range's name, as torch.profiler writes Python frames; "" if the name is not of `frame`."""
    match = _FRAME.fullmatch(name)
    return match[1] if match else ""


def parse(name: str) -> tuple[str, str, str] | None:
    """Return (kind, path or index, type) of a tracekit range name; None for any other name."""
    match = _RANGE.match(name)
    return (match["kind"], match["path"], match["type"] or "") if match else None


_INNERMOST_LIST = re.compile(r"\[([\d,\s]{16,})\]")


def recorded_shapes(shapes: str) -> list[list[int] | None]:
    """Return the shape of each input of an op: [] for a number, None for an impossible shape.

    `shapes` is the JSON array of the shapes of all inputs.
    """
    return [dims if _is_shape(dims) else None for dims in _array(shapes)]


def is_impossible(shapes: str) -> bool:
    """Return whether one of the shapes has more elements than any tensor, at whatever depth."""
    return any(math.prod(map(_size, inner.split(","))) > MOST_ELEMENTS for inner in _INNERMOST_LIST.findall(shapes))


def _size(digits: str) -> int:
    return int(digits) if digits.strip().isdecimal() and len(digits) < 40 else MOST_ELEMENTS + 1


def recorded_dims(shapes: str, operand: int) -> list[int]:
    """Return the shape of one input of an op; [] for a number, and if no shape was recorded."""
    return next(iter(recorded_shapes(shapes)[operand : operand + 1]), None) or []


def recorded_type(types: str) -> str:
    """Return the type of an op's first input; "" if it was not recorded. `types` is the JSON array of all types."""
    return next((each for each in _array(types)[:1] if isinstance(each, str)), "")


def _array(text: str) -> list[Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return []
    return parsed if isinstance(parsed, list) else []


def _is_shape(dims: Any) -> bool:
    whole = isinstance(dims, list) and all(type(size) is int and size >= 0 for size in dims)
    return whole and math.prod(dims) <= MOST_ELEMENTS and max(dims, default=0) <= MOST_ELEMENTS
