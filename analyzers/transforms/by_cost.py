"""Evaluates functions once for each distinct cost: an op list has far fewer costs than rows."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.prediction.op_columns import Objects, OpList

Rows = npt.NDArray[np.bool_]
"""Whether each row of an op list is selected."""
Key = TypeVar("Key")
Value = TypeVar("Value")


def coded(column: Objects) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.object_]]:
    """Return each row's index into the distinct objects of a column, and these objects in order of first appearance.

    Objects are compared by identity, not by equality, which needs no call into Python: an array of objects holds their
    addresses.
    """
    objects = np.ascontiguousarray(column, dtype=object)
    codes, addresses = pd.factorize(np.ndarray(len(objects), np.intp, objects))
    one = np.empty(len(addresses), dtype=object)
    one[codes] = objects
    return codes, one


def alike(*columns: Objects) -> tuple[npt.NDArray[np.intp], list[tuple[Any, ...]]]:
    """Number the rows, with one number for rows in which all columns hold the same objects.

    Also return the objects of each number.
    """
    (numbers, first), *others = map(coded, columns)
    if not others:
        return numbers, [(one,) for one in first]
    for codes, objects in others:
        numbers = numbers * len(objects) + codes
    numbers, _ = pd.factorize(numbers)
    rows = np.empty(numbers.max(initial=-1) + 1, dtype=np.intp)
    rows[numbers] = np.arange(len(numbers))
    return numbers, list(zip(*(column[rows] for column in columns), strict=True))


def each(function: Callable[..., Any], *columns: Objects, dtype: npt.DTypeLike = object) -> npt.NDArray[Any]:
    """Return `function` of the columns' values for each row, called once for rows that hold the same objects."""
    codes, held = alike(*columns)
    return np.array([function(*values) for values in held], dtype=dtype)[codes]


def which(column: Objects, test: Callable[[Any], bool]) -> Rows:
    """Select the rows whose value passes the test."""
    return each(test, column, dtype=bool)


def each_row(rows: Mapping[int, Key], function: Callable[[Key], Value]) -> dict[int, Value]:
    """Return `function` of each row's object, called once for each distinct object."""
    values = {key: function(one) for key, one in {id(one): one for one in rows.values()}.items()}
    return {row: values[id(one)] for row, one in rows.items()}


def in_phase(ops: OpList, phase: str) -> Rows:
    """Select the ops of a phase."""
    return np.equal(ops.phase, phase, dtype=bool)


def optimizes(ops: OpList) -> Rows:
    """Select the ops of an optimizer."""
    return in_phase(ops, "optimizer") | where(ops, lambda cost: cost is not None and cost.family == "optimizer")


def costs_of(ops: OpList, rows: Rows) -> dict[int, Cost]:
    """Return the costs of these rows of an op list, by position."""
    costs = ops.cost
    return {row: costs[row] for row in rows.nonzero()[0].tolist()}


def distinct(costs: Objects) -> list[Cost]:
    """Return each distinct cost once."""
    return [cost for cost in coded(costs)[1] if cost is not None]


def where(ops: OpList, test: Callable[[Cost | None], bool]) -> Rows:
    """Select the rows of an op list whose cost passes the test."""
    return which(ops.cost, test)


def op_class(cost: Cost | None, category: str) -> str:
    """Return the family of an op. Without a cost, it is "other" for a kernel, else memcpy or memset."""
    return cost.family if cost else "other" if category == "kernel" else category
