"""Comparisons of real traces lose no time, and swapping the traces negates every change."""

import math
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace

import tracekit
from tracekit.analyzers.compare import Comparison, compare
from tracekit.analyzers.compare.comparison import COMPARED_KERNELS, COMPARED_LAYERS, COMPARED_OPS, DIFFERENCE
from tracekit.analyzers.compare.layer_pairs import layer_pairs
from tracekit.analyzers.results import Analysis

SAMPLES = Path(__file__).parents[2] / "examples" / "traces"
SHARED = Path(__file__).parents[3] / "shared" / "traces"
PAIRS = [
    (SAMPLES / "h200_gpt2_decode.json.gz", SAMPLES / "h200_gpt2_decode_eager_for-t4.json.gz"),
    (SAMPLES / "h200_gpt2_prefill.json.gz", SAMPLES / "h200_gpt2_train.json.gz"),
    (SAMPLES / "h200_gpt2_prefill.json.gz", SAMPLES / "h200_compile-and-graph.json.gz"),
    (SAMPLES / "h200_gpt2_prefill.json.gz", SHARED / "h200_gpt2_fp32-eager_prefill.json.gz"),
    (SHARED / "h100_bert-small.json.gz", SHARED / "mi300_bert-small.json.gz"),
    (SAMPLES / "h200_llama-1b_decode.json.gz", SHARED / "h200_llama-1b_bf16_decode.json.gz"),
    (SAMPLES / "h200_bert_prefill.json.gz", SHARED / "cpu_only.json.gz"),
]


@cache
def analysis(path: Path) -> Analysis:
    if not path.exists():
        pytest.skip("needs the shared traces")
    return tracekit.analyze(path)


@cache
def compared(a: Path, b: Path) -> Comparison:
    return compare(analysis(a), analysis(b))


pairs = pytest.mark.parametrize(("a", "b"), PAIRS, ids=lambda path: path.name.split(".")[0])


@pairs
def test_the_rows_sum_to_the_latencies_and_to_the_busy_time(a: Path, b: Path) -> None:
    comparison = compared(a, b)
    for side, name in ((comparison.a, "a_ns"), (comparison.b, "b_ns")):
        assert comparison.difference[name].sum() == pytest.approx(side.latency_ns, rel=1e-12)
        busy = comparison.difference[comparison.difference["kind"] == "busy"]
        assert (comparison.difference["kind"] == "overlap").sum() == 1
        roots = comparison.layers[comparison.layers["parent"] < 0]
        for table in (busy, comparison.ops, comparison.kernels, roots):
            assert table[name].sum() == pytest.approx(side.work_ns, rel=1e-9)
        for table in (comparison.ops, comparison.kernels, roots):
            assert table[name.replace("_ns", "_busy_ns")].sum() == pytest.approx(side.busy_ns, rel=1e-9)
    assert comparison.difference["change_ns"].sum() == pytest.approx(comparison.change_ns, rel=1e-9)
    assert comparison.layers["change_self_busy_ns"].sum() == pytest.approx(
        comparison.b.busy_ns - comparison.a.busy_ns, rel=1e-6
    )
    assert comparison.difference["share"].sum() == pytest.approx(1.0)


@pairs
def test_kernels_flops_and_bytes_are_those_of_the_analyses(a: Path, b: Path) -> None:
    comparison = compared(a, b)
    for path, side in ((a, "a"), (b, "b")):
        of = analysis(path)
        steps = len(of.timeline.steps) * of.work["device"].nunique()
        for table in (comparison.ops, comparison.kernels, comparison.difference):
            assert table[f"{side}_kernels"].sum() == pytest.approx(len(of.work) / steps)
            for column in ("flops", "bytes"):
                assert table[f"{side}_{column}"].sum() == pytest.approx(of.work[column].sum() / steps)


@pairs
def test_the_other_way_round_is_the_opposite(a: Path, b: Path) -> None:
    there, back = compared(a, b), compared(b, a)
    assert there.change_ns == -back.change_ns
    assert there.speedup == pytest.approx(1 / back.speedup)
    for name, keys in (
        ("difference", [("kind", "kind"), ("name", "name")]),
        ("layers", [("a_path", "b_path"), ("b_path", "a_path")]),
        ("ops", [("a_name", "b_name"), ("b_name", "a_name")]),
        ("kernels", [("a_name", "b_name"), ("b_name", "a_name")]),
    ):
        one = getattr(there, name).set_index([key for key, _ in keys])
        other = getattr(back, name).set_index([key for _, key in keys])
        assert not one.index.duplicated().any()
        assert set(one.index) == set(other.index), name
        other = other.reindex(one.index)
        assert (one["change_ns"] == -other["change_ns"]).all()
        assert (one["a_kernels"] == other["b_kernels"]).all()


@pytest.mark.parametrize("path", [PAIRS[0][0], PAIRS[1][1], PAIRS[2][1], PAIRS[4][1]], ids=lambda path: path.name)
def test_a_run_is_no_different_from_itself(path: Path) -> None:
    comparison = compared(path, path)
    assert comparison.speedup == 1.0
    for table in (comparison.difference, comparison.layers, comparison.ops, comparison.kernels):
        assert (table["change_ns"] == 0).all()
        if "match" in table:
            assert set(table["match"]) == {"name"}
    assert (comparison.difference["share"] == 0).all()
    assert comparison.notes == () or analysis(path).latency.unprofiled is None


def test_other_attention_is_found_where_it_is() -> None:
    """GPT-2 decode, 12 layers: one fused attention kernel each against two products and a softmax."""
    comparison = compared(*PAIRS[0])
    assert set(comparison.layers["match"]) == {"name"}
    family = comparison.difference.set_index("name")
    assert family.loc["attention", ["a_kernels", "b_kernels"]].tolist() == pytest.approx([12, 0])
    assert family.loc["softmax", ["a_kernels", "b_kernels"]].tolist() == pytest.approx([0, 12])
    assert family.loc["gemm", ["a_kernels", "b_kernels"]].tolist() == pytest.approx([49, 49 + 24])
    ops = comparison.ops.set_index(["a_name", "b_name"])
    assert ops.loc[("aten::_efficient_attention_forward", ""), "match"] == "only A"
    assert ops.loc[("aten::addmm", "aten::addmm"), ["a_kernels", "b_kernels"]].tolist() == pytest.approx([48, 48])
    attention = comparison.layers[comparison.layers["a_path"].str.fullmatch(r"transformer\.h\.\d+\.attn")]
    assert len(attention) == 12
    assert (attention["change_ns"] < 0).all()


def test_work_of_a_rank_that_overlaps_more_is_compared_by_its_own_duration() -> None:
    """The products of rank 1 take longer, whatever the collective beside them: recounted from the traces."""
    ranks = [SHARED / "ranks" / f"rank-{rank}.json.gz" for rank in (0, 1)]
    comparison = compared(*ranks)
    families = comparison.difference[comparison.difference["kind"] == "busy"].set_index("name")
    for name, family in (("a_ns", analysis(ranks[0])), ("b_ns", analysis(ranks[1]))):
        gemm = family.work[(family.work["family"] == "gemm") & (family.work["category"] == "kernel")]
        steps = len(family.timeline.steps)
        assert families.loc["gemm", name] == pytest.approx(gemm["duration_ns"].sum() / steps)
    assert families.loc["gemm", "change_ns"] > 0
    assert comparison.difference["change_ns"].sum() == pytest.approx(comparison.change_ns, rel=1e-9)


def test_kernels_of_another_maker_are_matched_by_what_they_do() -> None:
    comparison = compared(*PAIRS[4])
    assert set(comparison.layers["match"]) == {"name"}
    assert set(comparison.ops["match"]) == {"name"}
    kernels = comparison.kernels[~comparison.kernels["match"].isin(["only A", "only B"])]
    attention = kernels[kernels["family"] == "attention"].iloc[0]
    assert ("flash_fwd_kernel" in attention["a_name"], attention["b_name"]) == (True, "attn_fwd")
    matrix = kernels[kernels["b_name"].str.startswith("Cijk_")]
    assert len(matrix) == 4
    assert set(matrix["match"]) == {"layer"}
    assert (matrix["a_kernels"] == matrix["b_kernels"]).all()


def test_layers_are_matched_across_two_ways_of_naming_them() -> None:
    """tracekit's ranges name attributes, nn.Module events name classes: GPT2Block_3 is transformer.h.3."""
    comparison = compared(*PAIRS[3])
    blocks = comparison.layers[comparison.layers["a_type"] == "GPT2Block"]
    assert blocks["a_path"].tolist() == [f"transformer.h.{i}" for i in range(12)]
    assert blocks["b_path"].tolist() == [f"GPT2LMHeadModel_0.GPT2Model_0.GPT2Block_{i}" for i in range(12)]
    convolutions = comparison.layers[comparison.layers["a_type"] == "Conv1D"]
    assert len(convolutions) == 48
    assert convolutions["b_path"].str.contains("Conv1D").all()
    assert ((convolutions["a_kernels"] > 0) & (convolutions["b_kernels"] > 0)).all()


def test_tables_have_the_declared_columns() -> None:
    comparison = compared(*PAIRS[0])
    tables = {
        DIFFERENCE: comparison.difference,
        COMPARED_LAYERS: comparison.layers,
        COMPARED_OPS: comparison.ops,
        COMPARED_KERNELS: comparison.kernels,
    }
    for table, frame in tables.items():
        assert list(frame.columns) == [column.name for column in table.columns]


def layers(*rows: tuple[str, str, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["path", "type", "parent"])


MODEL = (("", "Model", -1), ("a", "Linear", 0), ("b", "Linear", 0), ("c", "Norm", 0), ("(no layer)", "", -1))


def matched(a: pd.DataFrame, b: pd.DataFrame) -> list[tuple[str, str, str]]:
    def path(of: pd.DataFrame, row: int) -> str:
        return of["path"][row] if row >= 0 else "-"

    return [(path(a, pair.a), path(b, pair.b), pair.match) for pair in layer_pairs(a, b)]


def test_a_wrapper_is_looked_through() -> None:
    wrapped = layers(
        ("outer", "OptimizedModule", -1),
        ("outer._orig_mod", "Model", 0),
        *((f"outer._orig_mod.{path}", kind, 1) for path, kind, _ in MODEL[1:4]),
        MODEL[4],
    )
    assert matched(layers(*MODEL), wrapped) == [
        ("-", "outer", "only B"),
        ("", "outer._orig_mod", "type"),
        ("a", "outer._orig_mod.a", "name"),
        ("b", "outer._orig_mod.b", "name"),
        ("c", "outer._orig_mod.c", "name"),
        ("(no layer)", "(no layer)", "name"),
    ]


def test_renamed_layers_are_matched_by_class_in_order_and_then_by_place() -> None:
    renamed = layers(("", "Model", -1), ("x", "Linear", 0), ("norm", "RMSNorm", 0), ("y", "Linear", 0), MODEL[4])
    assert matched(layers(*MODEL), renamed) == [
        ("", "", "name"),
        ("a", "x", "type"),
        ("b", "y", "type"),
        ("c", "norm", "place"),
        ("(no layer)", "(no layer)", "name"),
    ]


def test_what_is_on_one_side_only_is_kept_whole() -> None:
    more = layers(*MODEL[:4], ("head", "Head", 0), ("head.deep", "Linear", 4), MODEL[4])
    there = matched(layers(*MODEL), more)
    assert [row for row in there if "only" in row[2]] == [("-", "head", "only B"), ("-", "head.deep", "only B")]
    assert {(b, a) for a, b, _ in there} == {(a, b) for a, b, _ in matched(more, layers(*MODEL))}


def test_steps_are_normalized() -> None:
    """A run whose three steps are cut to one is the same run."""
    whole = analysis(PAIRS[0][0])
    first = whole.work[whole.work["step"] == 0].reset_index(drop=True)
    cut = replace(
        whole,
        work=first,
        timeline=replace(whole.timeline, steps=whole.timeline.steps.iloc[:1]),
        gaps=whole.gaps[whole.gaps["step"] == 0],
    )
    comparison = compare(whole, cut)
    assert comparison.speedup == 1.0
    assert (comparison.a.steps, comparison.b.steps) == (3, 1)
    assert comparison.a.kernels == pytest.approx(comparison.b.kernels)
    assert np.allclose(comparison.kernels["a_kernels"], comparison.kernels["b_kernels"])
    assert abs(comparison.b.busy_ns / comparison.a.busy_ns - 1) < 0.02


def test_without_flops_nothing_is_said_of_them() -> None:
    cpu = compared(*PAIRS[6])
    assert math.isnan(cpu.b.flops)
    assert any("CPU" in note for note in cpu.notes)
