"""Op calls under Nsight Compute: assigning launches to ops, and comparing formulas with measurements."""

import math

import pandas as pd
import pytest
from accuracy.counted_calls import FILE, calls, families, listing, targets
from accuracy.counted_causes import cause
from kernel_counters import Launcher, rows
from kernel_times import launchers
from measure_counters import CASES, chosen

SPIN = "void at::cuda::<unnamed>::spin_kernel(long)"


def counters(*launches):
    """A table with a row for each (name, fp32 FLOPs, tensor core FLOPs, bytes read, bytes written)."""
    names = ["name", "fp32_flops", "tensor_flops", "dram_read_bytes", "dram_write_bytes"]
    return pd.DataFrame(launches, columns=names).assign(fp64_flops=0.0, fp16_flops=1e6)


MEASURED = counters(
    ("before", 9.0, 9.0, 9.0, 9.0),
    (SPIN, 0.0, 0.0, 1.0, 1.0),
    ("mul", 4.0, 0.0, 32.0, 16.0),
    (SPIN, 0.0, 0.0, 1.0, 1.0),
    ("sort", 0.0, 0.0, 8.0, 8.0),
    ("fill", 0.0, 0.0, 0.0, 64.0),
    ("sum", 6.0, 100.0, 24.0, 2.0),
)
OUTER, FILL = Launcher(1, "outer", "fp32[4]", "bf16"), Launcher(2, "fill_", "fp32[4] 0", "bf16")
KNOWN = {"one": [Launcher(0, "mul", "fp32[4]", "")], "two": [OUTER, FILL, OUTER]}


def test_kernels_go_to_the_op_that_launched_them():
    assert list(rows(KNOWN, MEASURED)) == [
        ("one", "mul", "fp32[4]", "", 1, 4, 32, 16),
        ("two", "outer", "fp32[4]", "bf16", 2, 106, 32, 10),
        ("two", "fill_", "fp32[4] 0", "bf16", 1, 0, 0, 64),
    ]


def test_calls_with_other_kernels_than_recorded_are_named_and_left_out(capsys):
    result = list(rows(KNOWN | {"two": [OUTER, FILL]}, MEASURED))
    assert [row[0] for row in result] == ["one"]
    assert capsys.readouterr().out == "two: 3 kernels were measured, 2 recorded\n"


def test_other_calls_than_recorded_are_refused():
    with pytest.raises(ValueError, match="2 calls were measured, 1 recorded"):
        list(rows({"one": KNOWN["one"]}, MEASURED))


def test_launchers_of_a_trace_in_the_order_of_the_device():
    """An op is nested in another, with a memset between; kernels outside the mark belong to no case."""
    op = {"cat": "cpu_op", "tid": 1, "args": {"Input Dims": [[4]], "Input type": ["float"], "Input Strides": [[1]]}}
    events = [
        {"cat": "user_annotation", "name": "case:3:counted:0", "ts": 0, "dur": 50, "tid": 1},
        {**op, "name": "aten::outer", "ts": 1, "dur": 40},
        {**op, "name": "aten::fill_", "ts": 10, "dur": 10},
    ]
    for number, (at, kind) in enumerate(
        [(2, "kernel"), (4, "gpu_memset"), (12, "kernel"), (30, "kernel"), (60, "kernel")]
    ):
        launch = {"args": {"correlation": number}}
        events += [
            {"cat": "cuda_runtime", "ts": at, "tid": 1, **launch},
            {"cat": kind, "ts": 100 + at, "dur": 1, **launch},
        ]
    launched = launchers(events)
    assert list(launched) == [3]
    assert [(op, inputs) for _, op, inputs in launched[3]] == [(op, "fp32[4]") for op in ("outer", "fill_", "outer")]
    assert launched[3][0][0] == launched[3][2][0] != launched[3][1][0]


@pytest.fixture(scope="module")
def compared():
    return calls()


def test_the_cases_that_are_measured_are_those_of_the_file():
    assert set(chosen()) == set(CASES) == set(pd.read_csv(FILE)["label"])


def test_every_measured_call_has_a_formula(compared):
    assert len(compared) == len(pd.read_csv(FILE)) == 56


@pytest.mark.parametrize(
    ("label", "flops", "read"),
    [
        ("bmm_scores_bf16", 2 * 32 * 1024 * 1024 * 128, 2 * 2 * 32 * 1024 * 128),
        ("conv2d", 2 * 56 * 56 * 256 * 128, 4 * (256 * 56 * 56 + 128 * 256)),
        ("softmax", None, 4 * 512 * 2048),
        ("gather_full", None, (4 + 8) * 4096 * 2048),
    ],
)
def test_what_was_measured_is_what_an_engineer_counts(label, flops, read):
    row = pd.read_csv(FILE).set_index("label").loc[label]
    assert row["read_bytes"] == pytest.approx(read, rel=0.015)
    assert flops is None or row["flops"] == pytest.approx(flops, rel=0.005)


def test_whatever_is_off_by_a_tenth_says_why(compared):
    off = compared[((compared[["flops", "read"]] - 1).abs() > 0.1).any(axis=1)]
    assert [(row.label, row.op) for row in off.itertuples() if not cause(row.label, row.op)] == []
    assert 10 < len(off) < len(compared)


def test_targets_are_of_the_family_and_the_product_that_are_furthest_off(compared):
    read, flops = targets(compared)
    assert "(embedding)" in read.claim and not read.met
    assert flops.met
    whole = compared.assign(flops=math.nan, read=1.0, full_product=False)
    assert targets(whole)[0].met


def test_the_page_has_a_line_a_family_and_a_line_a_call(compared):
    assert families(compared).count("\n") == 1 + compared["family"][compared["counted_read_bytes"] >= 1 << 20].nunique()
    lines = listing(compared).split("\n")
    assert len(lines) == 2 + len(compared)
    assert "| `bmm` (bmm_scores_bf16) | 1.00 | 1.00 | 0.60 |  |" in lines
