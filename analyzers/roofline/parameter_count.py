"""Counts a model's parameters, from the capture or from the gradients that autograd accumulates."""

import json
from math import prod

import pandas as pd

from tracekit.analyzers.capture_info import CaptureInfo

ACCUMULATED = "torch::autograd::AccumulateGrad"


def parameter_count(host: pd.DataFrame, capture: CaptureInfo | None) -> int | None:
    """Return the number of elements of all parameters; None if it is unknown.

    Each backward pass accumulates every parameter's gradient once, so the count of the rarest gradient shape is the
    number of backward passes.
    """
    if capture and capture.parameters:
        return capture.parameters
    shapes = host["shapes"][(host["name"] == ACCUMULATED).to_numpy()].astype(str)
    counted = [(_elements(str(text)), int(count)) for text, count in shapes.value_counts().items() if count]
    passes = min((count for size, count in counted if size), default=0)
    return sum(size * count for size, count in counted) // passes if passes else None


def _elements(shapes: str) -> int:
    """Return the number of elements of the gradient; 0 if its shape is not recorded."""
    try:
        dims = json.loads(shapes)[0]
        return prod(dims) if all(isinstance(size, int) and size >= 0 for size in dims) else 0
    except (ValueError, IndexError, TypeError, KeyError):
        return 0
