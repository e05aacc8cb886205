"""Costs of ops that AMD's AITER and FlashAttention register, with inputs as traces of these record them."""

import pytest
from test_cost_custom_ops import INT, NONE, cost, number, tensor

from tracekit.analyzers.cost import Attention, Product

FP8, FLOAT = "c10::Float8_e4m3fnuz", "float"


@pytest.mark.parametrize("name", ["aiter::fmha_v3_fwd", "aiter::mha_fwd", "FlashAttnFunc"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_dense_sequences(name: str, causal: bool) -> None:
    heads_last = [tensor(1, 768, 24, 128)] * 3
    known = cost(name, *heads_last, number(0.0), number(0.088), number(causal), number(-1), number(-1))
    pairs = 768 * 769 // 2 if causal else 768 * 768
    assert known.flops == 4 * 24 * 128 * pairs
    assert known.work == Attention(1, 24, 24, 768, 768, 128, causal, "flash")
    assert known.write_bytes == 2 * 768 * 24 * 128 + 4 * 24 * 768


@pytest.mark.parametrize(("name", "before"), [("aiter::mha_varlen_fwd", 12), ("FlashAttnVarlenFunc", 9)])
def test_attention_of_packed_sequences(name: str, before: int) -> None:
    lengths = [tensor(5, dtype=INT)] * 2
    inputs = [tensor(256, 16, 64), tensor(256, 4, 64), tensor(256, 4, 64), *lengths]
    known = cost(name, *inputs, *[number(64)] * (before - len(inputs)), number(True), number(-1), number(-1))
    assert known.work == Attention(4, 16, 4, 64, 64, 64, True, "flash", True)
    assert known.flops == 4 * 4 * 16 * 64 * (64 * 65 // 2)


def test_gradients_of_attention_are_five_products() -> None:
    heads_last = [tensor(2, 128, 8, 64)] * 5
    flags = [number(0.0), number(0.125), number(False), number(-1), number(-1)]
    known = cost("aiter::fmha_v3_bwd", *heads_last, tensor(2, 8, 128, dtype=FLOAT), *flags)
    assert known.flops == 10 * 2 * 8 * 128 * 128 * 64


def test_norms() -> None:
    plain = cost("aiter::rms_norm", tensor(32, 2880), tensor(2880), number(1e-5), number(0))
    assert (plain.flops, plain.bytes) == (4 * 32 * 2880, 2 * (2 * 32 * 2880 + 2880))
    rows = [tensor(32, 2880)] * 4
    added = cost("aiter::rmsnorm2d_fwd_with_add_ck", *rows, tensor(2880), number(1e-5), number(0))
    assert (added.flops, added.bytes) == (5 * 32 * 2880, 2 * (4 * 32 * 2880 + 2880))
    quantized = cost(
        "aiter::rmsnorm2d_fwd_with_dynamicquant_ck",
        tensor(32, 2880, dtype=FP8),
        tensor(32, 2880),
        tensor(32, 1, dtype=FLOAT),
        tensor(2880),
        number(1e-5),
        number(0),
    )
    assert (quantized.read_bytes, quantized.write_bytes) == (2 * (32 * 2880 + 2880), 32 * 2880)


@pytest.mark.parametrize("name", ["aiter::gemm_a8w8_blockscale_ck", "aiter::gemm_a8w8_blockscale_bpreshuffle"])
def test_products_in_eight_bits(name: str) -> None:
    a, weights = tensor(8192, 5120, dtype=FP8), tensor(34816, 5120, dtype=FP8)
    known = cost(name, a, weights, tensor(8192, 40, dtype=FLOAT), tensor(272, 40, dtype=FLOAT), tensor(8192, 34816))
    assert known.work == Product(1, 8192, 34816, 5120, weight="b")
    assert (known.precision, known.weight_bytes) == ("fp8", 34816 * 5120)
    assert known.write_bytes == 2 * 8192 * 34816


def test_products_in_sixteen_and_four_bits() -> None:
    assert cost("aiter::gemm_a16w16", tensor(32, 2880), tensor(5120, 2880)).flops == 2 * 32 * 5120 * 2880
    packed = tensor(64, 256, dtype="unsigned char"), tensor(1024, 256, dtype="unsigned char")
    known = cost("aiter::gemm_afp4wfp4_", *packed, tensor(64, 16, dtype="unsigned char"))
    assert known.work == Product(1, 64, 1024, 512, weight="b", stored="int4")


def test_experts() -> None:
    w1, w2 = tensor(8, 512, 128), tensor(8, 128, 256)
    order = [tensor(64, dtype=INT), tensor(9, dtype=INT), tensor(2, dtype=INT)]
    up = cost("aiter::ck_moe_stage1", tensor(4, 128), w1, w2, *order, tensor(4, 2, 256), number(2))
    assert up.flops == 2 * 8 * 512 * 128
    down = cost("aiter::ck_moe_stage2", tensor(4, 2, 256), w1, w2, *order, tensor(4, 128), number(2))
    assert down.flops == 2 * 8 * 128 * 256
    ids = [tensor(64, dtype=INT), tensor(64, dtype=FLOAT), tensor(9, dtype=INT), tensor(2, dtype=INT)]
    both = cost("aiter::fmoe_g1u1", tensor(4, 128), tensor(4, 128), w1, w2, *ids, number(2))
    assert both.flops == up.flops + down.flops
    routed = cost("aiter::fused_moe_", tensor(4, 128), w1, w2, tensor(4, 2, dtype=FLOAT), tensor(4, 2, dtype=INT))
    assert routed.flops == up.flops + down.flops


def test_small_parts() -> None:
    gated = cost("aiter::silu_and_mul", tensor(4, 128), tensor(4, 256))
    assert (gated.read_bytes, gated.write_bytes) == (2 * 1024, 2 * 512)
    quantized = cost(
        "aiter::dynamic_per_token_scaled_quant",
        tensor(56, 128, dtype=FP8),
        tensor(56, 128),
        tensor(56, 1, dtype=FLOAT),
        NONE,
    )
    assert (quantized.read_bytes, quantized.write_bytes) == (2 * 56 * 128, 56 * 128 + 4 * 56)
    heads = tensor(1, 32, 8, 64), tensor(1, 32, 2, 64)
    table, places = tensor(4096, 1, 1, 32), tensor(1, 32, dtype="long int")
    rotated = cost("aiter::rope_cached_positions_2c_fwd_impl", *heads, *heads, table, table, places)
    assert rotated.write_bytes == 2 * 32 * 10 * 64
    cache = tensor(100_000, 16, 8, 64)
    stored = cost("aiter::reshape_and_cache", tensor(32, 8, 64), tensor(32, 8, 64), cache, cache, tensor(32, dtype=INT))
    assert stored.bytes == 2 * 4 * 32 * 8 * 64 + 4 * 32
