"""Costs of ops with the schemas that vLLM, SGLang and FBGEMM register, from calls that torch's profiler recorded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tracekit
from tracekit.analyzers.cost import Cost, Product, cost_of_signature

RECORDER = Path(__file__).with_name("registered_ops.py")
TOKENS, HIDDEN, EXPERTS, CHOSEN, LOOKED_UP, WIDTH, TABLES, SAMPLES = 64, 256, 8, 2, 1000, 16, 4, 32


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> dict:
    path = tmp_path_factory.mktemp("ops") / "ops.json"
    subprocess.run([sys.executable, str(RECORDER), str(path)], check=True, capture_output=True)
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def calls(trace) -> list[dict]:
    ops = [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
    return [event for event in ops if not event["name"].startswith("aten")]


def cost(calls, name: str) -> Cost:
    recorded = next(call["args"] for call in calls if call["name"] == name)
    columns = (json.dumps(recorded.get(key, [])) for key in ("Input Dims", "Input type", "Concrete Inputs"))
    known = cost_of_signature(name, *columns)
    assert known is not None, name
    return known


def test_each_op_has_a_cost(calls) -> None:
    names = {call["name"] for call in calls}
    assert len(names) > 20
    assert all(cost(calls, name).bytes > 0 for name in names)


@pytest.mark.parametrize("name", ["sgl_kernel::fp8_scaled_mm", "vllm::w8a8_block_fp8_matmul", "vllm::fp8_gemm_nt_op"])
def test_weights_in_eight_bits_lie_in_either_order(calls, name: str) -> None:
    known = cost(calls, name)
    assert known.work == Product(1, TOKENS, 2 * HIDDEN, HIDDEN, weight="b")
    assert (known.precision, known.weight_bytes, known.write_bytes) == ("fp8", 2 * HIDDEN**2, 4 * TOKENS * HIDDEN)


@pytest.mark.parametrize("name", ["_C::cutlass_scaled_fp4_mm", "_C::ggml_mul_mat_a8"])
def test_two_weights_in_four_bits_share_a_byte(calls, name: str) -> None:
    known = cost(calls, name)
    assert known.work == Product(1, TOKENS, 2 * HIDDEN, HIDDEN, weight="b", stored="int4")
    assert known.flops == 4 * TOKENS * HIDDEN**2


@pytest.mark.parametrize(
    ("name", "stored", "apart"), [("_C::cutlass_moe_mm", None, 1), ("_moe_C::moe_wna16_marlin_gemm", "int4", CHOSEN)]
)
def test_rows_are_routed_to_experts(calls, name: str, stored: str | None, apart: int) -> None:
    known, routed = cost(calls, name), TOKENS * CHOSEN
    assert known.flops == 4 * routed * HIDDEN**2
    assert isinstance(known.work, Product)
    assert (known.work.routed, known.work.experts, known.work.stored, known.work.apart) == (
        routed,
        EXPERTS,
        stored,
        apart,
    )


def test_a_cache_is_not_read_whole(calls) -> None:
    assert cost(calls, "sgl_kernel::store_kv_cache").bytes == 2 * 4 * TOKENS * HIDDEN + 8 * TOKENS
    assert cost(calls, "_C_cache_ops::cp_gather_cache").bytes == 2 * 2 * TOKENS * 576
    rotated = cost(calls, "_C_cache_ops::concat_and_cache_mla_rope_fused")
    assert rotated.write_bytes == 2 * TOKENS * (4 * 64 + 64 + 512)
    assert cost(calls, "_C::persistent_topk").bytes == 4 * TOKENS * (512 + 8)


def test_layers_whose_state_is_no_input_are_lower_bounds(calls) -> None:
    known = cost(calls, "vllm::gdn_attention_core")
    assert (known.estimated, known.flops, known.bytes) == (True, 0, 2 * TOKENS * HIDDEN * 5)


def test_rows_of_tables_in_four_bits(calls) -> None:
    known = cost(calls, "fbgemm::int_nbit_split_embedding_codegen_lookup_function")
    assert known.read_bytes == LOOKED_UP * (WIDTH // 2 + 4) + 4 * LOOKED_UP + 4 * (SAMPLES * TABLES + 1)
    assert known.write_bytes == 2 * SAMPLES * TABLES * WIDTH


def test_jagged_rows_and_lists_of_embeddings(calls) -> None:
    assert cost(calls, "fbgemm::jagged_dense_bmm").flops == 2 * LOOKED_UP * WIDTH * 8
    moved = cost(calls, "fbgemm::permute_multi_embedding")
    assert moved.read_bytes == moved.write_bytes == 4 * SAMPLES * 3 * WIDTH
    assert cost(calls, "fbgemm::group_index_select_dim0").write_bytes == 4 * LOOKED_UP * 3 * WIDTH
    narrowed = cost(calls, "fbgemm::FloatToFused8BitRowwiseQuantized")
    assert narrowed.write_bytes == SAMPLES * (WIDTH + 8)


@pytest.mark.parametrize("node", ["torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>"])
def test_the_gradient_of_a_lookup_reads_what_comes_back(node: str) -> None:
    known = cost_of_signature(node, json.dumps([[SAMPLES, TABLES * WIDTH]]), json.dumps(["float"]), json.dumps([""]))
    assert known is not None
    assert (known.estimated, known.read_bytes) == (True, 4 * SAMPLES * TABLES * WIDTH)


def test_a_step_on_a_gpu_is_covered(calls, tmp_path) -> None:
    """A kernel for each recorded call, and one without a cost that takes a twentieth of the time."""
    events, at = [], 100.0
    for number, call in enumerate([*calls, calls[0] | {"name": "unknown::op"}], 1):
        ids = {"correlation": number, "External id": number}
        events += [
            {**call, "pid": 1, "tid": 1, "ts": at, "dur": 9, "args": call["args"] | ids},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at + 2, "dur": 3}
            | {"args": ids},
            {"ph": "X", "cat": "kernel", "name": f"kernel_{number}", "pid": 0, "tid": 7, "ts": at + 6, "dur": 4}
            | {"args": {"device": 0, "stream": 7} | ids},
        ]
        at += 10
    device = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": events}
    path = tmp_path / "step.json"
    path.write_text(json.dumps(device))
    coverage = tracekit.analyze(path).coverage
    assert coverage.cost == pytest.approx(len(calls) / (len(calls) + 1))
    assert coverage.cost > 0.9
