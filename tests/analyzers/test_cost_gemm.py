"""Matrix products against torch's own FLOP counter and the bytes of the tensors themselves."""

import pytest
import torch
from recorded_calls import counted_flops, meta, record, record_one

from tracekit.analyzers.cost import Product, cost_of_signature

aten = torch.ops.aten
HALF = torch.float16


def test_mm() -> None:
    cost = record_one(lambda: aten.mm(meta(8, 768), meta(768, 2304))).cost()
    assert cost.flops == 2 * 8 * 768 * 2304
    assert cost.read_bytes == 4 * (8 * 768 + 768 * 2304)
    assert cost.write_bytes == 4 * 8 * 2304
    assert cost.weight_bytes == 4 * 768 * 2304
    assert (cost.family, cost.precision, cost.work) == ("gemm", "fp32", Product(1, 8, 2304, 768, weight="b"))
    assert cost.intensity == cost.flops / (cost.read_bytes + cost.write_bytes)


@pytest.mark.parametrize(
    "run",
    [
        lambda: aten.mm(meta(8, 16, dtype=HALF), meta(16, 4, dtype=HALF)),
        lambda: aten.addmm(meta(4), meta(8, 16), meta(16, 4)),
        lambda: aten.addmm(meta(8, 4), meta(8, 16), meta(16, 4)),
        lambda: aten.bmm(meta(3, 8, 16, dtype=torch.bfloat16), meta(3, 16, 4, dtype=torch.bfloat16)),
        lambda: aten.baddbmm(meta(1, 8, 4), meta(3, 8, 16), meta(3, 16, 4)),
    ],
)
def test_flops_and_bytes_are_torchs(run) -> None:
    recorded = record_one(run)
    cost = recorded.cost()
    assert cost.flops == counted_flops(run) > 0
    assert (cost.read_bytes, cost.write_bytes) == (recorded.input_bytes, recorded.output_bytes)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 3, 8, 16), (16, 4)),
        ((2, 3, 8, 16), (2, 3, 16, 4)),
        ((3, 8, 16), (2, 1, 16, 4)),
        ((8, 16), (2, 3, 16, 4)),
        ((16,), (16, 4)),
        ((3, 8, 16), (16,)),
        ((16,), (3, 16, 4)),
    ],
)
def test_matmul_broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    cost = cost_of_signature("aten::matmul", f"[{list(a)},{list(b)}]", '["float","float"]', "")
    assert cost is not None
    out = torch.matmul(meta(*a), meta(*b))
    inner = a[-1]
    assert cost.flops == 2 * inner * out.numel()
    assert cost.write_bytes == out.nbytes
    assert cost.read_bytes == meta(*a).nbytes + meta(*b).nbytes


def test_the_gemms_of_a_linear_layers_training_step() -> None:
    layer = torch.nn.Linear(16, 4, device="meta")

    def step() -> None:
        layer(meta(8, 16).requires_grad_()).sum().backward()

    ops = [call.cost() for call in record(step) if call.name in ("aten::mm", "aten::addmm")]
    assert len(ops) == 3
    assert sum(cost.flops for cost in ops) == counted_flops(step) == 3 * 2 * 8 * 16 * 4


def test_linear_is_its_addmm() -> None:
    linear = cost_of_signature("aten::linear", "[[2,4,16],[8,16],[8]]", '["float","float","float"]', "")
    addmm = cost_of_signature("aten::addmm", "[[8],[8,16],[16,8]]", '["float","float","float"]', "")
    assert linear == addmm


def test_beta_zero_does_not_read_the_sum() -> None:
    dims, types = "[[3,8,4],[3,8,16],[3,16,4],[],[]]", '["float","float","float","Scalar","Scalar"]'
    with_sum, without = (
        cost_of_signature("aten::baddbmm", dims, types, f'["","","","{beta}","1"]') for beta in ("1", "0")
    )
    assert with_sum is not None and without is not None
    assert with_sum.read_bytes - without.read_bytes == 4 * 3 * 8 * 4


def test_out_dtype() -> None:
    cost = cost_of_signature(
        "aten::mm", "[[8,16],[16,4],[]]", '["c10::BFloat16","c10::BFloat16","Scalar"]', '["","","6"]'
    )
    assert cost is not None
    assert (cost.write_bytes, cost.precision) == (4 * 8 * 4, "bf16")


def test_grouped_mm_of_experts() -> None:
    experts = cost_of_signature(
        "aten::_grouped_mm", "[[64,16],[4,16,8],[4],[],[]]", '["c10::BFloat16","c10::BFloat16","int","",""]', ""
    )
    gradient = cost_of_signature(
        "aten::_grouped_mm", "[[16,64],[64,8],[4],[],[]]", '["c10::BFloat16","c10::BFloat16","int","",""]', ""
    )
    assert experts is not None and gradient is not None
    assert experts.flops == gradient.flops == 2 * 64 * 16 * 8
    assert experts.read_bytes == 2 * (64 * 16 + 4 * 16 * 8) + 4 * 4
    assert (experts.write_bytes, gradient.write_bytes) == (2 * 64 * 8, 2 * 4 * 16 * 8)


def test_scaled_mm() -> None:
    fp8 = "c10::Float8_e4m3fn"
    cost = cost_of_signature(
        "aten::_scaled_mm",
        "[[32,64],[64,16],[],[],[],[],[],[]]",
        f'["{fp8}","{fp8}","float","float","","","Scalar","Scalar"]',
        '["","","","","","","15","False"]',
    )
    assert cost is not None
    assert (cost.flops, cost.precision) == (2 * 32 * 64 * 16, "fp8")
    assert cost.read_bytes == 32 * 64 + 64 * 16 + 2 * 4
    assert (cost.write_bytes, cost.weight_bytes) == (2 * 32 * 16, 64 * 16)


def test_integer_matrices() -> None:
    cost = cost_of_signature("aten::_int_mm", "[[32,64],[64,16]]", '["signed char","signed char"]', "")
    assert cost is not None
    assert (cost.precision, cost.read_bytes, cost.write_bytes) == ("int8", 32 * 64 + 64 * 16, 4 * 32 * 16)


def test_weight_only_int8_and_int4() -> None:
    """Weights of 4096 × 4096 in one byte and in half a byte; the arithmetic stays bf16."""
    int8 = cost_of_signature(
        "aten::_weight_int8pack_mm",
        "[[1,4096],[4096,4096],[4096]]",
        '["c10::BFloat16","signed char","c10::BFloat16"]',
        "",
    )
    int4 = cost_of_signature(
        "aten::_weight_int4pack_mm",
        "[[1,4096],[512,32,32,4],[],[128,4096,2]]",
        '["c10::BFloat16","int","Scalar","c10::BFloat16"]',
        '["","","32",""]',
    )
    assert int8 is not None and int4 is not None
    assert int8.flops == int4.flops == 2 * 4096 * 4096
    assert (int8.weight_bytes, int4.weight_bytes) == (4096 * 4096, 4096 * 4096 // 2)
    assert int8.precision == int4.precision == "bf16"
    assert int4.write_bytes == 2 * 4096
