"""Selects ops whose number of output rows depends on values, so that the host waits for the device to know it."""

from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.by_cost import Rows, which

_BY_VALUES = (
    "aten::nonzero",
    "aten::masked_select",
    "aten::unique_consecutive",
    "aten::_unique",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::repeat_interleave",
)
FIXED = "aten::topk"
"""The op that replaces them if the number of rows is fixed."""


def by_values(ops: OpList) -> Rows:
    """Select the ops of an op list that have outputs whose shapes depend on values."""
    return which(ops.name, _BY_VALUES.__contains__)
