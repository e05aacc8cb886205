"""Counts a model's parameters, from the capture or from the gradients that autograd accumulates."""

from collections import Counter
from math import prod

import pandas as pd

from tracekit.analyzers.capture_info import CaptureInfo
from tracekit.analyzers.costs import dtypes
from tracekit.analyzers.recorded_dims import recorded_shapes, recorded_type

ACCUMULATED = "torch::autograd::AccumulateGrad"
_SMALLEST = 2
"""Smallest size in bytes of an element of a trained parameter."""


def parameter_count(host: pd.DataFrame, capture: CaptureInfo | None) -> int | None:
    """Return the number of elements of all parameters; None if it is unknown.

    Each backward pass accumulates every parameter's gradient once, so the count of the rarest gradient shape is the
    number of backward passes.
    """
    if capture and capture.parameters:
        return capture.parameters
    return sum(elements for elements, _ in _gradients(host)) or None


def gradient_bytes(host: pd.DataFrame) -> int:
    """Return the bytes of the gradients of all parameters, at least; 0 if unknown."""
    return sum(elements * size for elements, size in _gradients(host))


def _gradients(host: pd.DataFrame) -> list[tuple[int, int]]:
    """Return the elements of the gradients of each shape and type, and the bytes of an element."""
    rows = host.loc[(host["name"] == ACCUMULATED).to_numpy(), ["shapes", "dtypes"]].astype(str)
    calls = Counter(zip(rows["shapes"], rows["dtypes"], strict=True))
    counted = [(_elements(shapes), _size(names), n) for (shapes, names), n in calls.items()]
    passes = min((n for elements, _, n in counted if elements), default=0)
    return [(elements * n // passes, size) for elements, size, n in counted if passes]


def _elements(shapes: str) -> int:
    """Return the number of elements of the gradient; 0 if its shape is not recorded."""
    return sum(prod(dims) for dims in recorded_shapes(shapes)[:1] if dims is not None)


def _size(names: str) -> int:
    dtype = dtypes.find(recorded_type(names))
    return max(_SMALLEST, dtype.bytes) if dtype else _SMALLEST
