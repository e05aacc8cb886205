"""How many parameters a model has: as the capture says, or by the gradients that autograd accumulates."""

import json
from math import prod

import pandas as pd

from tracekit.analyzers.capture_info import CaptureInfo

_ACCUMULATES = "torch::autograd::AccumulateGrad"


def parameter_count(host: pd.DataFrame, capture: CaptureInfo | None) -> int | None:
    """Elements of all parameters; None where the trace does not tell.

    Each backward pass accumulates every parameter's gradient once. The gradient of the rarest shape tells how many
    passes there were.
    """
    if capture and capture.parameters:
        return capture.parameters
    shapes = host["shapes"][(host["name"] == _ACCUMULATES).to_numpy()].astype(str)
    counted = [(_elements(str(text)), int(count)) for text, count in shapes.value_counts().items() if count]
    passes = min((count for size, count in counted if size), default=0)
    return sum(size * count for size, count in counted) // passes if passes else None


def _elements(shapes: str) -> int:
    """Elements of the gradient; 0 where its shape is not recorded."""
    try:
        dims = json.loads(shapes)[0]
        return prod(dims) if all(isinstance(size, int) and size >= 0 for size in dims) else 0
    except (ValueError, IndexError, TypeError, KeyError):
        return 0
