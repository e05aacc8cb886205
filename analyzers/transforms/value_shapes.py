"""Selects ops whose number of output rows depends on values, so that the host waits for the device to know it."""

import pandas as pd

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


def by_values(ops: pd.DataFrame) -> "pd.Series[bool]":
    """Return which ops of an op list have outputs whose shapes depend on values."""
    return ops["name"].isin(_BY_VALUES)
