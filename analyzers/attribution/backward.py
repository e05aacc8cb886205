"""Backward work to the forward op that it differentiates, by autograd's sequence numbers."""

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.attribution.kernel_names import matching
from analyzers.attribution.nesting import Nest, nearest, take

Ints = npt.NDArray[np.int64]

_ENGINE = re.compile(r"autograd::engine::evaluate_function")


def forward_of(host: pd.DataFrame, ops: Nest) -> tuple[Ints, Ints]:
    """Per host row that is an op: the nearest backward op around it, and the forward op that it belongs to.

    -1 where there is none. An op is backward when the engine evaluates it, or when it names a forward thread. The
    forward op is the last one with the sequence number of the nearest backward op that has one: ops that create no
    autograd node share the number of the next op that does. Ops that a checkpoint runs again inside the backward are
    forward ops too.
    """
    sequence = host["sequence"].to_numpy()
    is_op = np.zeros(len(host), dtype=bool)
    is_op[ops.rows] = True
    backward = is_op & (matching(host["name"], _ENGINE) | ((host["forward_thread"].to_numpy() > 0) & (sequence >= 0)))
    if not backward.any():
        none = np.full(len(host), -1, dtype=np.int64)
        return none, none
    parent = ops.parents()
    around = nearest(parent, backward)
    numbered = nearest(parent, backward & (sequence >= 0))
    differentiated = take(sequence, numbered)
    is_forward = is_op & ~backward & (sequence >= 0) & (sequence != differentiated)
    forward = _last_with(host, is_forward, differentiated)
    return around, np.where(around >= 0, forward, -1)


def _last_with(host: pd.DataFrame, mask: npt.NDArray[np.bool_], wanted: Ints) -> Ints:
    """The last-started row of `mask` with each wanted sequence number; -1: none."""
    rows = np.flatnonzero(mask)
    sequence = host["sequence"].to_numpy()[rows]
    order = np.lexsort((host["start_ns"].to_numpy()[rows], sequence))
    rows, sequence = rows[order], sequence[order]
    at = np.searchsorted(sequence, wanted, side="right") - 1
    found = (at >= 0) & (take(sequence, at) == wanted) & (wanted >= 0)
    return np.where(found, take(rows, at), -1)
