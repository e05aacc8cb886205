"""What is the same for equal costs, found once for each: an op list has far fewer costs than rows."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np
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


def each(keys: Iterable[Key], function: Callable[[Key], Value]) -> list[Value]:
    """`function` of each of `keys`, called once for those that are one object."""
    keys = list(keys)
    ids = list(map(id, keys))
    found = {key: function(one) for key, one in dict(zip(ids, keys, strict=True)).items()}
    return list(map(found.__getitem__, ids))


def each_row(rows: Mapping[int, Key], function: Callable[[Key], Value]) -> dict[int, Value]:
    """The same of what belongs to rows."""
    return dict(zip(rows, each(rows.values(), function), strict=True))


def distinct(costs: Iterable[Cost | None]) -> list[Cost]:
    """The costs that there are, each object once."""
    return [cost for cost in {id(cost): cost for cost in costs}.values() if cost is not None]


def where(ops: pd.DataFrame, test: Callable[[Cost | None], bool]) -> "pd.Series[bool]":
    """The rows of an op list whose cost passes the test."""
    return pd.Series(np.array(each(ops.cost, test), dtype=bool), index=ops.index)
