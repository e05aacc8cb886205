"""Op calls under Nsight Compute: formulas of FLOPs and bytes beside what was counted."""

import pandas as pd
import pytest

from benchmarks.accuracy.counted_calls import FILE, calls, cause


@pytest.fixture(scope="module")
def compared():
    return calls()


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
