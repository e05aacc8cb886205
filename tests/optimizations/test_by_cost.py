import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace

from tracekit.analyzers.core import Interval, Outcomes
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict import distinct, each, pick, where
from tracekit.analyzers.predict.op_columns import coded, op_list

SUM, PRODUCT = Cost(8, 64, 32, "pointwise", "fp32"), Cost(512, 256, 64, "gemm", "fp16")


def test_an_interval_has_its_ends_in_order_and_outcomes_any():
    with pytest.raises(ValueError, match="out of order"):
        Interval(3.3, 2.65, 2.1)
    assert [pick(Outcomes(3.3, 2.65, 2.1), outcome) for outcome in ("worst", "expected", "best")] == [3.3, 2.65, 2.1]


def test_one_object_is_looked_at_once():
    seen = []
    costs = pd.Series([SUM, PRODUCT, None, SUM, None], dtype=object)
    selected = each(lambda cost: seen.append(cost) or (cost.flops if cost else -1), costs, dtype=int)
    assert selected.tolist() == [8, 512, -1, 8, -1]
    assert seen == [SUM, PRODUCT, None]


def test_equal_objects_are_told_apart():
    codes, objects = coded(np.array([SUM, replace(SUM), SUM], dtype=object))
    assert codes.tolist() == [0, 1, 0]
    assert objects.tolist() == [SUM, SUM]


def test_a_column_among_others_is_read_as_its_own():
    ops = op_list(name=["a", "b", "a"], cost=[SUM, PRODUCT, SUM], layer=["", "x", ""])
    assert each(lambda cost: cost.family, ops.cost[::-2]).tolist() == ["pointwise", "pointwise"]


def test_rows_are_selected_by_position():
    ops = op_list(cost=[PRODUCT, None, SUM, PRODUCT]).assign(index=[5, 3, 9, 7])
    selected = where(ops, lambda cost: cost is not None and cost.family == "gemm")
    assert selected.tolist() == [True, False, False, True]


def test_no_rows():
    assert where(op_list(), bool).tolist() == []


def test_distinct_costs():
    assert distinct(pd.Series([SUM, None, PRODUCT, SUM], dtype=object)) == [SUM, PRODUCT]
