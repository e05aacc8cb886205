"""Backward work to the forward op that it differentiates, by autograd's sequence numbers."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.nesting import Nest, Rows, nearest, take
from tracekit.analyzers.attribution.training import backward_ops


def forward_of(host: pd.DataFrame, ops: Nest, asked: Rows) -> tuple[Rows, Rows]:
    """Per op row asked for (-1: none): the nearest backward op around it, and the forward op that it belongs to.

    -1 where there is none. An op is backward when the engine evaluates it, or when it names a forward thread. The
    forward op is the last one with the sequence number of the nearest backward op that has one: ops that create no
    autograd node share the number of the next op that does. Ops that a checkpoint runs again inside the backward are
    forward ops too.
    """
    sequence = host["sequence"].to_numpy()[ops.rows]
    backward = backward_ops(host, ops)
    if not backward.any():
        none = np.full(len(asked), -1, dtype=np.int32)
        return none, none
    at = np.where(asked >= 0, np.searchsorted(ops.rows, asked), -1)
    around = take(nearest(ops.parent, backward), at)
    differentiated = take(sequence, nearest(ops.parent, backward & (sequence >= 0)))
    forward = np.flatnonzero(~backward & (sequence >= 0) & (sequence != differentiated))
    found = _last_with(host, ops.rows[forward], take(differentiated, at))
    return take(ops.rows, around), np.where(around >= 0, found, -1)


def _last_with(host: pd.DataFrame, rows: Rows, wanted: npt.NDArray) -> Rows:
    """The last-started of the rows with each wanted sequence number; -1: none."""
    sequence = host["sequence"].to_numpy()[rows]
    order = np.lexsort((host["start_ns"].to_numpy()[rows], sequence))
    rows, sequence = rows[order], sequence[order]
    at = np.searchsorted(sequence, wanted, side="right") - 1
    found = (at >= 0) & (take(sequence, at) == wanted) & (wanted >= 0)
    return np.where(found, take(rows, at), -1)
