"""Op calls under Nsight Compute: formulas of FLOPs and bytes beside what was counted."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.measurements.own import cost_of

FILE = Path(__file__).parents[1] / "benchmarks" / "data" / "h200_counters.csv"


def calls() -> pd.DataFrame:
    """A row an op call: label, op, family, bytes read as counted, and measured
    over counted FLOPs, bytes read and bytes written, NaN where nothing is counted."""
    return pd.DataFrame(_ratios(pd.read_csv(FILE, keep_default_na=False, dtype={"flops": str})))


def _ratios(measured: pd.DataFrame) -> Iterator[dict[str, object]]:
    for row in measured.to_dict("records"):
        cost = cost_of(row["label"], row["op"], row["inputs"], row["elements"])
        if cost is not None:
            yield {
                **{name: row[name] for name in ("label", "op")},
                "family": cost.family,
                "counted_read_bytes": cost.read_bytes,
                "flops": _over(float(row["flops"] or "nan"), cost.flops),
                "read": _over(row["read_bytes"], cost.read_bytes),
                "written": _over(row["write_bytes"], cost.write_bytes),
            }


def _over(measured: float, counted: int) -> float:
    return measured / counted if counted else np.nan


_TILE = "a tile has at least 8 columns for one row"
_PASSES = "rows too long for shared memory are read again, for each pass"
_ROOT = "a square root or a division is several instructions"

CAUSES = {
    ("add", ""): "a + alpha·b is a multiply-add",
    ("bias_row", ""): "a + alpha·b is a multiply-add",
    ("gelu", ""): "an error function is several instructions",
    ("where_mask", ""): "elements hidden by a causal mask are not loaded",
    ("sum_last", ""): "partial sums of threads are added, too",
    ("argmax_last", ""): "the counters do not count comparisons as FLOPs",
    ("var_mean", ""): "one pass, with one division per element",
    ("layer_norm", ""): "one pass, with one division per element",
    ("softmax", ""): "an exponential is several instructions",
    ("layer_norm_bwd", ""): "two kernels, each of which reads both inputs",
    ("log_softmax", ""): _PASSES,
    ("cross_entropy", "_log_softmax"): _PASSES,
    ("cross_entropy", "_log_softmax_backward_data"): _PASSES,
    ("cross_entropy", "nll_loss_forward"): "an element loads its sector of 32 bytes, and the next one",
    ("cross_entropy", "nll_loss_backward"): "a few kB: parameters and code of the kernel",
    ("embedding_bwd", "embedding_dense_backward"): "partial sums are written, and read again",
    ("scatter_add", ""): "additions in the L2 are not counted",
    ("adamw_fused", "_foreach_add_"): "a few kB: parameters and code of the kernel",
    ("adamw_fused", "_fused_adamw_"): _ROOT,
    ("adamw_foreach", "_foreach_sqrt"): _ROOT,
    ("adamw_foreach", "_foreach_div_"): _ROOT,
    ("adamw_foreach", "_foreach_addcdiv_"): _ROOT,
    ("mm_fp32", ""): "each thread sums a part of a row; then these sums are added",
    ("mm_bf16", ""): _TILE,
    ("addmm_bf16", ""): _TILE,
    ("int4_weight", ""): "weights are converted to bf16",
    ("flash_prefill", ""): "whole tiles on the diagonal; exponentials",
    ("efficient_prefill", ""): "whole tiles on the diagonal; exponentials",
    ("cudnn_prefill", ""): "whole tiles on the diagonal; exponentials",
    ("efficient_fp32_prefill", ""): "an fp32 GEMM is three TF32 GEMMs",
    ("flash_decode", ""): "a tile has 128 rows for one query",
    ("cudnn_decode", ""): "a tile has 16 rows for one query",
}


def cause(label: str, op: str) -> str:
    return CAUSES.get((label, op)) or CAUSES.get((label, ""), "")


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
