"""What is the same for equal costs, found once for each: an op list has far fewer costs than rows."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pandas as pd

from analyzers.costs.call import Cost

Key = TypeVar("Key")
Value = TypeVar("Value")


def each(keys: Iterable[Key], function: Callable[[Key], Value]) -> list[Value]:
    """`function` of each of `keys`, called once for those that are one object."""
    keys = list(keys)
    ids = list(map(id, keys))
    found = {key: function(one) for key, one in dict(zip(ids, keys, strict=True)).items()}
    return list(map(found.__getitem__, ids))


def where(ops: pd.DataFrame, test: Callable[[Cost | None], bool]) -> "pd.Series[bool]":
    """The rows of an op list whose cost passes the test."""
    return pd.Series(each(ops.cost, test), index=ops.index, dtype=bool)
