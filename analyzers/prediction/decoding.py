"""Recognizes decoding in a step without a marked phase: one query attends to many keys."""

import pandas as pd

from tracekit.analyzers.costs.work import Attention


def with_decoding(ops: pd.DataFrame) -> pd.DataFrame:
    """Return the op list (OP_LIST) with the phase "decode" if no phase is marked and all attention has one query."""
    if (ops["phase"] != "").any():
        return ops
    shapes = [cost.work for cost in ops["cost"] if cost is not None and isinstance(cost.work, Attention)]
    decodes = bool(shapes) and all(shape.queries == 1 < shape.keys for shape in shapes)
    return ops.assign(phase=pd.Series("decode", index=ops.index, dtype=object)) if decodes else ops
