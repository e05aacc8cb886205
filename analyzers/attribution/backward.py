"""Links backward ops to the forward ops that they differentiate, by autograd's sequence numbers."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.nesting import Nest, Rows, nearest, take
from tracekit.analyzers.attribution.training import backward_ops


def forward_of(host: pd.DataFrame, ops: Nest, rows: Rows) -> tuple[Rows, Rows]:
    """Return, for each op in `rows`, the nearest backward op around it and the forward op that it belongs to.

    All values are host rows, -1 for none. An op is backward if the engine evaluates it, or if it names a forward
    thread. The forward op is the last one with the sequence number of the nearest backward op that has one, because
    ops that create no autograd node share the number of the next op that does. Ops that a checkpoint runs again inside
    the backward pass are forward ops, too.
    """
    sequence = host["sequence"].to_numpy()[ops.rows]
    backward = backward_ops(host, ops)
    if not backward.any():
        none = np.full(len(rows), -1, dtype=np.int32)
        return none, none
    at = np.where(rows >= 0, np.searchsorted(ops.rows, rows), -1)
    around = take(nearest(ops.parent, backward), at)
    differentiated = take(sequence, nearest(ops.parent, backward & (sequence >= 0)))
    forward = np.flatnonzero(~backward & (sequence >= 0) & (sequence != differentiated))
    origin = _last_with(host, ops.rows[forward], take(differentiated, at))
    return take(ops.rows, around), np.where(around >= 0, origin, -1)


def _last_with(host: pd.DataFrame, rows: Rows, wanted: npt.NDArray) -> Rows:
    """Return, for each wanted sequence number, the row with it that started last; -1 for none."""
    sequence = host["sequence"].to_numpy()[rows]
    order = np.lexsort((host["start_ns"].to_numpy()[rows], sequence))
    rows, sequence = rows[order], sequence[order]
    at = np.searchsorted(sequence, wanted, side="right") - 1
    matches = (at >= 0) & (take(sequence, at) == wanted) & (wanted >= 0)
    return np.where(matches, take(rows, at), -1)
