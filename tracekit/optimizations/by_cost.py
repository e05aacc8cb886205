"""What is the same for equal costs, found once for each: an op list has far fewer costs than rows."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.costs.call import Cost
from analyzers.prediction.baseline import Baseline

Key = TypeVar("Key")
Value = TypeVar("Value")


_WORDS = ("name", "layer", "layer_type", "phase", "category")
"""Columns of an op list."""


def sharing(base: Baseline) -> Baseline:
    """The same run with equal costs and equal words as one object each."""
    shared: dict[Cost, Cost] = {}
    costs = [cost and shared.setdefault(cost, cost) for cost in base.ops.cost]
    words = {name: _sharing_words(base.ops[name]) for name in _WORDS}
    return replace(base, ops=base.ops.assign(cost=pd.Series(costs, index=base.ops.index, dtype=object), **words))


def _sharing_words(words: "pd.Series[str]") -> "pd.Series[str]":
    codes, distinct = pd.factorize(words)
    return pd.Series(np.asarray(distinct, dtype=object)[codes], index=words.index, dtype=object)


def coded(column: "pd.Series[Any]") -> tuple[npt.NDArray[np.intp], npt.NDArray[np.object_]]:
    """The objects that a column holds, in the order in which they first appear, and which of them each row is.

    What is equal and not one object is told apart: no object is asked, as an array of objects holds their addresses.
    """
    objects = np.ascontiguousarray(column, dtype=object)
    codes, addresses = pd.factorize(np.ndarray(len(objects), np.intp, objects))
    one = np.empty(len(addresses), dtype=object)
    one[codes] = objects
    return codes, one


def each(column: "pd.Series[Any]", function: Callable[[Any], Any], dtype: npt.DTypeLike = object) -> npt.NDArray[Any]:
    """`function` of each value of a column, called once for those that are one object."""
    codes, objects = coded(column)
    return np.array([function(one) for one in objects], dtype=dtype)[codes]


def each_row(rows: Mapping[int, Key], function: Callable[[Key], Value]) -> dict[int, Value]:
    """`function` of what belongs to rows, called once for what is one object."""
    found = {key: function(one) for key, one in {id(one): one for one in rows.values()}.items()}
    return {row: found[id(one)] for row, one in rows.items()}


def distinct(costs: "pd.Series[Any]") -> list[Cost]:
    """The costs that there are, each object once."""
    return [cost for cost in coded(costs)[1] if cost is not None]


def where(ops: pd.DataFrame, test: Callable[[Cost | None], bool]) -> "pd.Series[bool]":
    """The rows of an op list whose cost passes the test."""
    return pd.Series(each(ops.cost, test, bool), index=ops.index)
