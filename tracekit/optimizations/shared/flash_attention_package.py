"""Adds the code that transformers runs around the flash-attn package's kernels."""

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.by_cost import Rows
from tracekit.analyzers.transforms.extra_kernels import PYTHON_OP, Extra, moving, with_extras
from tracekit.analyzers.transforms.outcome import Outcome, pick

PACKAGE = "flash-attention-2"
_UNPADDING = 16
"""Kernels that remove padding before the flash-attn package's kernel and restore it afterwards (transformers'
_upad_input: lengths, indices, three gathers, a scatter), with two waits for the device."""

_GATHER = 3.0
"""Host time of such a gather, an autograd.Function, in plain launches."""


def with_package(base: Baseline, fused: Rows, outcome: Outcome) -> OpList:
    """Add transformers' code around the package to the ops that `fused` selects.

    The code is an op in Python, and for padded sequences (before version 5 for all) the packing of the sequences.
    """
    batch_size = base.source.capture.batch_size if base.source.capture else 0
    called = Extra("flash_attn (Python)", moving(8, 8), host=1 + 2 * pick(PYTHON_OP, outcome))
    padded = outcome == "low" or (outcome == "expected" and batch_size > 1)
    rows = fused.nonzero()[0]
    before = {int(row): [called, *(_unpadding(base.ops.cost[row]) if padded else [])] for row in rows}
    return with_extras(base, before, {})


def _unpadding(cost: Cost) -> list[Extra]:
    """Return the kernels that gather keys and values into the package's layout, and read lengths back."""
    moved = cost.read_bytes / 2
    small = [Extra("unpad", moving(64, 64)) for _ in range(_UNPADDING - 4)]
    waits = [Extra("unpad: read back", moving(8, 8, family="copy"), sync=True) for _ in range(2)]
    return [
        *small,
        *waits,
        *(Extra("unpad: gather", moving(moved, moved, family="gather"), host=_GATHER) for _ in range(2)),
    ]
