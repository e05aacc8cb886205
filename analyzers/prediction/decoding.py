"""Whether a step without a marked phase decodes: one query attends to many keys."""

import pandas as pd

from tracekit.analyzers.costs.work import Attention


def with_decoding(ops: pd.DataFrame) -> pd.DataFrame:
    """The op list (OP_LIST) with the phase "decode" where no phase is marked and all attention is of one query."""
    if (ops["phase"] != "").any():
        return ops
    shapes = [cost.work for cost in ops["cost"] if cost is not None and isinstance(cost.work, Attention)]
    decodes = bool(shapes) and all(shape.queries == 1 < shape.keys for shape in shapes)
    return ops.assign(phase=pd.Series("decode", index=ops.index, dtype=object)) if decodes else ops
