"""The shapes of an op's inputs, as a trace records them."""

import json


def recorded_dims(shapes: str, operand: int) -> list[int]:
    """Return the shape of one input of an op; [] for a number, and where no shape was recorded.

    `shapes` is the JSON array of the shapes of all inputs.
    """
    try:
        dims = json.loads(shapes)[operand]
    except (ValueError, IndexError, TypeError, KeyError, RecursionError):
        return []
    return dims if isinstance(dims, list) and all(type(size) is int for size in dims) else []
