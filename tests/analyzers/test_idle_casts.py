"""What the recorded inputs of calls tell: casts that do nothing, masks that were expanded."""

import numpy as np
import pytest
from kineto_files import load_events, op

from tracekit.analyzers.predict.called import idle_casts, masks

FP32, BF16, LIKE = ["", "6", "False"], ["", "15", "False"], ["", "", "False"]


def cast(start, dtype="float", to=FP32, shape=(4, 8)):
    inputs = {"Input Dims": [list(shape), [], []], "Input type": [dtype, "Scalar", "Scalar"]}
    return op("aten::to", ts=start, dur=10.0, args=inputs | {"Concrete Inputs": to})


def test_casts_that_call_nothing_are_counted_with_their_sizes(tmp_path):
    idle = [cast(0.0), cast(20.0, shape=())]
    others = [cast(40.0, dtype="c10::BFloat16"), cast(60.0, to=BF16), cast(80.0, to=LIKE), op("aten::add", ts=95.0)]
    working = [cast(100.0), op("aten::_to_copy", ts=101.0, dur=8.0)]
    assert idle_casts(load_events(tmp_path, *idle, *others, *working).host) == (32, 1)


def test_a_trace_without_shapes_has_none(tmp_path):
    assert idle_casts(load_events(tmp_path, op("aten::to", dur=10.0)).host) == ()


@pytest.mark.parametrize(
    ("steps", "dims"),
    [([64, 64, 8, 1], [1, 1, 8, 8]), ([8, 8, 0, 1], [1, 1, 1, 8]), ([0, 0, 8, 1], [1, 1, 8, 8]), ([], [1, 1, 8, 8])],
)
def test_a_side_along_which_a_mask_was_expanded_was_one(tmp_path, steps, dims):
    given = {"Input Dims": [[1, 4, 8, 16]] * 3 + [[1, 1, 8, 8]], "Input Strides": [[512, 128, 16, 1]] * 3 + [steps]}
    host = load_events(tmp_path, op("aten::scaled_dot_product_attention", dur=10.0, args=given)).host
    assert masks(host, np.array([0, -1])).tolist() == [dims, None]
