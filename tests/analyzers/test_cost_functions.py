"""Costs of bitsandbytes' ops, xFormers' attention, and autograd functions of Liger, Apex and Transformer Engine."""

import pytest
from test_cost_custom_ops import INT, NONE, cost, number, tensor

from tracekit.analyzers.cost import Attention, Product

FLOAT, HALF, BYTE = "float", "c10::Half", "signed char"


def test_weights_in_four_bits() -> None:
    packed, shape = tensor(4096 * 1024 // 2, 1, dtype="unsigned char"), ([], "ScalarList", "[4096, 1024]")
    scales, code = tensor(4096 * 1024 // 64, dtype=FLOAT), tensor(16, dtype=FLOAT)
    known = cost("bitsandbytes::gemv_4bit", tensor(1, 1024), packed, shape, scales, code, number(64))
    assert known.work == Product(1, 1, 4096, 1024, weight="b", stored="int4")
    assert known.weight_bytes == 4096 * 1024 // 2
    widened = cost("bitsandbytes::dequantize_4bit", packed, scales, number(64), NONE, shape, number(15))
    assert (widened.write_bytes, widened.read_bytes) == (2 * 4096 * 1024, 4096 * 1024 // 2 + 4096 * 1024 // 16)


def test_products_in_eight_bits() -> None:
    a, weight = tensor(32, 1024, dtype=BYTE), tensor(4096, 1024, dtype=BYTE)
    known = cost("bitsandbytes::int8_linear_matmul", a, weight)
    assert (known.work, known.write_bytes) == (Product(1, 32, 4096, 1024, weight="b"), 4 * 32 * 4096)
    quantized = cost("bitsandbytes::int8_vectorwise_quant", tensor(32, 1024), number(0.0))
    assert (quantized.read_bytes, quantized.write_bytes) == (2 * 32 * 1024, 32 * 1024)


def test_attention_of_xformers() -> None:
    heads_last = [tensor(2, 64, 8, 64, dtype=HALF)] * 3
    sizes = [number(64), number(64)]
    memory_efficient = cost(
        "xformers::efficient_attention_forward_cutlass", *heads_last, NONE, NONE, NONE, *sizes, number(0.0), number(0)
    )
    assert memory_efficient.work == Attention(2, 8, 8, 64, 64, 64, False, "efficient")
    packed = [tensor(128, 8, 64, dtype=HALF)] * 3
    starts = [tensor(3, dtype=INT)] * 2
    flags = [number(0.0), number(0.125), number(True), number(-1), number(-1), number(False), NONE]
    flash = cost("xformers_flash::flash_fwd", *packed, *starts, NONE, *sizes, *flags)
    assert flash.work == Attention(2, 8, 8, 64, 64, 64, True, "flash", True)


def test_norms_and_activations() -> None:
    x, weight = tensor(4, 128, 64), tensor(64)
    known = cost("LigerRMSNormFunction", x, weight, number(1e-6))
    assert (known.flops, known.bytes, known.row) == (4 * 4 * 128 * 64, 2 * (2 * 4 * 128 * 64 + 64), 64)
    affine = cost("FusedLayerNormAffineFunction", x, weight, weight, number(1e-5))
    assert affine.bytes == 2 * (2 * 4 * 128 * 64 + 2 * 64)
    assert cost("LigerSiLUMulFunction", x, x).bytes == 2 * 3 * 4 * 128 * 64
    assert cost("LigerRopeFunction", x, tensor(4, 128, 16), weight, weight).write_bytes == 2 * 4 * 128 * 80
    assert cost("ScaledUpperTriangMaskedSoftmax", x, number(0.1)).bytes == 2 * 2 * 4 * 128 * 64
    assert (
        cost("LigerCrossEntropyFunction", tensor(16, 1000), tensor(16, dtype="long int")).write_bytes == 2 * 16 * 1000
    )


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("_Linear", [tensor(512, 64), tensor(4, 128, 64), tensor(512)]),
        ("_LayerNormLinear", [tensor(4, 128, 64), tensor(64), NONE, tensor(512, 64), tensor(512)]),
    ],
)
def test_layers_of_transformer_engine_multiply_by_their_weight(name: str, inputs: list) -> None:
    assert cost(name, *inputs).work == Product(1, 4 * 128, 512, 64, weight="b")


def test_gradients_of_functions_are_a_lower_bound() -> None:
    known = cost("FlashAttnFuncBackward", tensor(2, 64, 8, 64))
    assert known.estimated
    assert known.bytes == 2 * 2 * 2 * 64 * 8 * 64
