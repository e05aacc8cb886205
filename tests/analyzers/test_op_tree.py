"""The outermost op around a launch, and copies that no host waits for."""

import numpy as np
import pandas as pd

from tracekit.analyzers.attribute import outermost
from tracekit.analyzers.predict.waiting import blocking_copies

ROWS = [  # thread, start, duration, category, name
    (1, 0, 100, "range", "step"),
    (1, 10, 30, "op", "aten::all"),
    (1, 12, 20, "op", "aten::copy_"),
    (1, 50, 20, "op", "aten::is_nonzero"),
    (1, 52, 16, "op", "aten::item"),
    (1, 54, 10, "op", "aten::_local_scalar_dense"),
    (2, 11, 5, "op", "aten::mm"),
]
HOST = pd.DataFrame(ROWS, columns=["thread", "start_ns", "duration_ns", "category", "name"])


def test_an_op_belongs_to_the_outermost_call_of_its_thread():
    roots = outermost(HOST, np.array([2, 5, 6, 1, -1], dtype=np.int32), 0, 100)
    assert roots.tolist() == [1, 3, 6, 1, -1]


def test_no_op_in_the_step():
    assert outermost(HOST, np.array([-1], dtype=np.int32), 200, 300).tolist() == [-1]


def test_only_copies_of_pageable_memory_are_waited_for():
    """Each copy runs while its call, which a slow host takes 25 us for, has not yet returned."""
    host = pd.DataFrame({"start_ns": [0], "duration_ns": [25_000]})
    kinds = ["DtoD (Device -> Device)", "HtoD (Pinned -> Device)", "DtoH (Device -> Pageable)", "PtoP"]
    names = pd.Series([f"Memcpy {kind}" for kind in kinds])
    work = pd.DataFrame({"name": names, "launch": 0, "start_ns": 2_000, "duration_ns": 1_300, "category": "memcpy"})
    assert blocking_copies(host, work).tolist() == [False, False, True, False]
