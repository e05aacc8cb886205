"""The predicted change of device work, by class of layer."""

import math
from pathlib import Path

import pytest

import tracekit
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict import OpList, predicted_work
from tracekit.analyzers.predict.op_columns import op_list

SAMPLE = Path(__file__).parents[2] / "examples/traces/h200_gpt2_decode.json.gz"


def timed(*rows: tuple[str, float, Cost | None]) -> OpList:
    types, times, costs = zip(*rows, strict=True)
    return op_list(layer_type=types, kernel_ns=times, cost=costs, category=["kernel"] * len(rows))


def test_sums_by_part_before_and_after() -> None:
    product, norm = Cost(800, 60, 20, "gemm", "fp32"), Cost(9, 30, 30, "norm", "fp32")
    before = timed(("Linear", 50.2, product), ("Linear", 30.0, product), ("LayerNorm", 10.0, norm), ("", 2.0, None))
    after = timed(("Linear", 20.0, Cost(1600, 60, 20, "gemm", "bf16")), ("", 2.0, None))
    work_table = predicted_work({"half-precision": (before, after)}).set_index("part")
    assert work_table.index.tolist() == ["Linear", "LayerNorm", "(no layer)"]
    linear = work_table.loc["Linear"]
    columns = ("ns", "flops", "bytes", "precision")
    assert [linear[f"before_{name}"] for name in columns] == [80, 1600, 160, "fp32"]
    assert [linear[f"after_{name}"] for name in columns] == [20, 1600, 80, "bf16"]
    assert work_table.loc["LayerNorm", "after_ns"] == 0 and math.isnan(work_table.loc["LayerNorm", "after_flops"])
    assert work_table.loc["(no layer)", "before_precision"] == ""


def test_without_layers_by_class_of_op() -> None:
    ops = timed(("", 50.0, Cost(800, 60, 20, "gemm", "fp32")), ("", 5.0, None))
    assert predicted_work({"tf32": (ops, ops)})["part"].tolist() == ["gemm", "other"]


def test_at_most_forty_parts_and_none_without_predictions() -> None:
    ops = timed(*((f"Layer{i}", float(i), None) for i in range(60)))
    assert predicted_work({"tf32": (ops, ops)})["before_ns"].tolist() == list(range(59, 19, -1))
    assert predicted_work({}).empty


def test_of_every_recommendation_and_step_of_a_sample() -> None:
    result = tracekit.analyze(SAMPLE)
    names = [step.name for step in result.plan]
    wanted = {advice.id for advice in result.recommendations} | {"+".join(names[: i + 1]) for i in range(len(names))}
    a_pass = ("speculative-decoding", "paged-kv")
    assert set(result.predicted_work["applied"]) == {
        name for name in wanted if not any(each in name for each in a_pass)
    }
    alone = result.predicted_work[result.predicted_work["applied"] == result.recommendations[0].id]
    busy_ns = result.timeline.busy_ns / len(result.timeline.steps)
    assert alone["before_ns"].sum() == pytest.approx(busy_ns, rel=0.1)
