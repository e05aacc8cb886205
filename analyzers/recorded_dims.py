"""The shapes of an op's inputs, as a trace records them."""

import json
import math

_MOST = 2**63
"""Elements that no tensor has."""


def recorded_dims(shapes: str, operand: int) -> list[int]:
    """Return the shape of one input of an op; [] for a number, and where no shape was recorded that a tensor can have.

    `shapes` is the JSON array of the shapes of all inputs.
    """
    try:
        dims = json.loads(shapes)[operand]
    except (ValueError, IndexError, TypeError, KeyError, RecursionError):
        return []
    whole = isinstance(dims, list) and all(type(size) is int and size >= 0 for size in dims)
    return dims if whole and math.prod(dims) < _MOST and max(dims, default=0) < _MOST else []
