"""Costs of ops that vLLM, SGLang and FBGEMM register."""

import json
from pathlib import Path

import pandas as pd
import pytest

import tracekit
from tracekit.analyzers.attribute import parameter_count
from tracekit.analyzers.cost import Attention, Cost, Product, cost_of_signature

BF16, INT, LONG, FLOAT = "c10::BFloat16", "int", "long int", "float"
Input = tuple[object, str, str]


def tensor(*shape: int, dtype: str = BF16) -> Input:
    return list(shape), dtype, ""


def number(value: object) -> Input:
    return [], "Scalar", str(value)


NONE: Input = ([], "", "")


def cost(name: str, *inputs: Input) -> Cost:
    shapes, types, values = (json.dumps(column) for column in zip(*inputs, strict=True))
    known = cost_of_signature(name, shapes, types, values)
    assert known is not None, name
    return known


def test_norms_of_vllm() -> None:
    plain = cost("_C::rms_norm", tensor(8, 64), tensor(8, 64), tensor(64), number(1e-6))
    assert (plain.flops, plain.bytes, plain.row) == (4 * 512, 2 * (512 + 512 + 64), 64)
    added = cost("_C::fused_add_rms_norm", tensor(8, 64), tensor(8, 64), tensor(64), number(1e-6))
    assert (added.flops, added.bytes) == (5 * 512, 2 * (4 * 512 + 64))


def test_a_gated_activation_reads_both_halves() -> None:
    known = cost("_C::silu_and_mul", tensor(4, 128), tensor(4, 256))
    assert (known.read_bytes, known.write_bytes, known.flops) == (2 * 1024, 2 * 512, 6 * 512)


def test_rotary_embedding_rotates_in_place() -> None:
    known = cost(
        "_C::rotary_embedding",
        tensor(16, dtype=LONG),
        tensor(16, 64),
        tensor(16, 32),
        number(32),
        tensor(256, 32),
        number(True),
    )
    assert known.write_bytes == 2 * 16 * 96
    assert known.read_bytes == 2 * 16 * 96 + 8 * 16 + 2 * 16 * 32


def test_products_of_vllm() -> None:
    linear = cost("_C::weight_packed_linear", tensor(16, 128), tensor(16, 64), tensor(128, 64), NONE, number(True))
    assert (linear.flops, linear.work) == (2 * 16 * 128 * 64, Product(1, 16, 128, 64, weight="b"))
    onednn = cost("_C::onednn_mm", tensor(16, 128), tensor(16, 64), NONE, number(94687985498768))
    assert (onednn.flops, onednn.weight_bytes) == (linear.flops, linear.weight_bytes)
    scaled = cost(
        "_C::cutlass_scaled_mm",
        tensor(16, 128),
        tensor(16, 64, dtype="c10::Float8_e4m3fn"),
        tensor(64, 128, dtype="c10::Float8_e4m3fn"),
        tensor(16, 1, dtype=FLOAT),
        tensor(1, 128, dtype=FLOAT),
        NONE,
    )
    assert (scaled.flops, scaled.precision, scaled.write_bytes) == (linear.flops, "fp8", 2 * 16 * 128)


def test_attention_over_pages_sees_the_longest_sequence() -> None:
    inputs = [tensor(4, 32, 128), *[tensor(1000, 16, 8, 128)] * 2, tensor(4, 32, 128)]
    inputs += [tensor(5, dtype=INT), NONE, tensor(4, dtype=INT), NONE, tensor(4, 64, dtype=INT), NONE]
    inputs += [number(1), number(512), number(0), number(0.08), number(False), number(True), number(-1), number(-1)]
    known = cost("_vllm_fa2_C::varlen_fwd", *inputs)
    assert known.work == Attention(4, 32, 8, 1, 512, 128, True, "flash", True)
    assert known.flops == 4 * 4 * 32 * 512 * 128
    assert known.read_bytes == 2 * (4 * 32 * 128 + 2 * 4 * 512 * 8 * 128)


def test_attention_whose_cache_is_not_an_input_is_a_lower_bound() -> None:
    qkv = [tensor(128, 2, 32), tensor(128, 1, 32), tensor(128, 1, 32)]
    known = cost("vllm::unified_attention_with_output", *qkv, tensor(128, 2, 32), NONE)
    assert (known.estimated, known.flops, known.bytes) == (True, 0, 2 * 128 * 32 * (2 + 1 + 1 + 2))


def test_the_cache_is_written_where_slots_say() -> None:
    inputs = [tensor(16, 8, 128)] * 2 + [tensor(1000, 16, 8, 128, dtype="unsigned char")] * 2
    known = cost("_C_cache_ops::reshape_and_cache_flash", *inputs, tensor(16, dtype=LONG), NONE)
    assert (known.read_bytes, known.write_bytes) == (2 * 2 * 16 * 1024 + 8 * 16, 2 * 16 * 1024)


def test_experts_that_no_token_chose_are_not_read() -> None:
    def cost_of(tokens: int) -> Cost:
        weights = [tensor(64, 256, 128), tensor(64, 128, 128)]
        chosen = [tensor(tokens, 2, dtype=FLOAT), tensor(tokens, 2, dtype=INT)]
        return cost("vllm::inplace_fused_experts", tensor(tokens, 128), *weights, *chosen)

    each = 256 * 128 + 128 * 128
    assert cost_of(3).flops == 2 * 6 * each
    assert cost_of(3).read_bytes == 2 * (3 * 128 + 6 * each) + 3 * 2 * 8
    assert cost_of(1000).read_bytes < 2 * (1000 * 128 + 65 * each) + 1000 * 2 * 8


SAMPLES, TABLES, WIDTH, LOOKED_UP = 32, 4, 16, 1000


def _lookup_inputs() -> list[Input]:
    columns = [tensor(TABLES, dtype=INT), tensor(TABLES, dtype=LONG), tensor(TABLES + 1, dtype=INT)]
    sizes = [number(TABLES * WIDTH), number(WIDTH)]
    data = [tensor(LOOKED_UP, dtype=LONG), tensor(SAMPLES * TABLES + 1, dtype=LONG), number(0)]
    weights = [tensor(10**6, dtype=FLOAT), tensor(0, dtype=FLOAT), tensor(0, WIDTH, dtype=FLOAT)]
    return [*weights, *columns, *sizes, *data]


def test_fbgemm_reads_the_rows_that_are_looked_up() -> None:
    known = cost("fbgemm::split_embedding_codegen_forward_unweighted_cuda", *_lookup_inputs(), tensor(1000, dtype=INT))
    assert known.read_bytes == 4 * LOOKED_UP * WIDTH + 8 * LOOKED_UP + 8 * (SAMPLES * TABLES + 1)
    assert known.write_bytes == 4 * SAMPLES * TABLES * WIDTH
    assert (known.family, known.run, known.flops) == ("embedding", WIDTH, LOOKED_UP * WIDTH)


def test_fbgemm_finds_indices_behind_the_sizes_of_tables() -> None:
    inputs = _lookup_inputs()
    hashes = [tensor(TABLES + 1, dtype=LONG), number(20)]
    placeholder = tensor(0, dtype=FLOAT)
    call = [placeholder, *inputs[:8], *hashes, *inputs[8:]]
    known = cost("fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function", *call)
    assert known == cost("fbgemm::split_embedding_codegen_forward_unweighted_cuda", *inputs)


def test_fbgemm_updates_rows_in_place() -> None:
    inputs = _lookup_inputs()
    call = [tensor(SAMPLES, TABLES * WIDTH, dtype=FLOAT), *inputs[:6], number(WIDTH)]
    call += [tensor(TABLES + 1, dtype=LONG), number(20), *inputs[8:]]
    known = cost("fbgemm::split_embedding_backward_codegen_rowwise_adagrad_unweighted_exact_cuda", *call)
    assert known.write_bytes == 4 * LOOKED_UP * WIDTH
    assert known.flops == 6 * LOOKED_UP * WIDTH


def test_sparse_features_are_permuted() -> None:
    lengths, values = tensor(4, 32, dtype=INT), tensor(LOOKED_UP, dtype=LONG)
    known = cost("fbgemm::permute_2D_sparse_data", tensor(4, dtype=INT), lengths, values, NONE, NONE)
    assert known.write_bytes == 4 * 128 + 8 * LOOKED_UP
    assert known.read_bytes == known.write_bytes + 16


def test_parameters_are_counted_by_their_gradients() -> None:
    name = "torch::autograd::AccumulateGrad"
    shapes = [f"[[{size}]]" for size in (10, 10, 300, 10, 10, 300)] + ["[]"]
    dtypes = ['["float"]'] * 6 + ["[]"]
    host = pd.DataFrame({"name": [name] * 6 + ["aten::add"], "shapes": shapes, "dtypes": dtypes})
    assert parameter_count(host, None) == 320
    assert parameter_count(host[6:], None) is None


@pytest.mark.parametrize("trace", ["cpu_vllm.json.gz", "cpu_vllm_0.13.json.gz"])
def test_ops_of_vllm_have_costs(trace: str) -> None:
    analysis = tracekit.analyze(Path(__file__).parents[2] / "examples" / "traces" / "serving" / trace)
    ops = analysis.work[analysis.work["op_name"].astype(str).str.match(r"_C::(weight|onednn|rotary|rms|fused|cpu_att)")]
    assert len(ops) > 20
    assert ops["bytes"].notna().all()


PACKED = {
    "_C::awq_gemm": [tensor(4, 256), tensor(256, 512 // 8, dtype=INT), tensor(2, 512), tensor(2, 64, dtype=INT)],
    "_C::gptq_gemm": [tensor(4, 256), tensor(256 // 8, 512, dtype=INT), tensor(2, 64, dtype=INT), tensor(2, 512)],
    "_C::marlin_gemm": [tensor(4, 256), NONE, tensor(16, 1024, dtype=INT), tensor(512), tensor(2, 512)],
    "_C::machete_mm": [tensor(4, 256), tensor(256 // 8, 512, dtype=INT), number(1), NONE, tensor(2, 512)],
}


@pytest.mark.parametrize("name", PACKED)
def test_products_with_packed_weights_have_the_columns_of_their_scales(name: str) -> None:
    known = cost(name, *PACKED[name])
    assert (known.flops, known.weight_bytes, known.write_bytes) == (2 * 4 * 256 * 512, 256 * 512 // 2, 2 * 4 * 512)
    assert known.work == Product(1, 4, 512, 256, weight="b", stored="int4")


def test_eight_bits_are_told_from_four() -> None:
    known = cost("_C::gptq_gemm", tensor(4, 256), tensor(64, 512, dtype=INT), tensor(2, 64, dtype=INT), tensor(2, 512))
    assert isinstance(known.work, Product) and known.work.stored == "int8"


def test_fp8_products_of_fbgemm() -> None:
    eight = "c10::Float8_e4m3fn"
    scales = [tensor(16, dtype=FLOAT), tensor(128, dtype=FLOAT)]
    known = cost("fbgemm::f8f8bf16_rowwise", tensor(16, 64, dtype=eight), tensor(128, 64, dtype=eight), *scales)
    assert (known.flops, known.precision, known.write_bytes) == (2 * 16 * 64 * 128, "fp8", 2 * 16 * 128)


def test_queries_and_keys_are_normed_and_rotated_in_place() -> None:
    known = cost("_C::fused_qk_norm_rope", tensor(8, 6 * 64), number(4), number(1), number(1), number(64), number(1e-6))
    assert known.read_bytes == known.write_bytes == 2 * 8 * 5 * 64
