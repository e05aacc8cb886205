"""Attention: every backend's schema, exact causal positions, grouped heads, and torch's own FLOP counter."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_calls import counted_flops, meta, record, record_one

from tracekit.analyzers.cost import Attention, Cost, cost_of_signature
from tracekit.analyzers.cost.ops.attention import Layout, allowed_positions
from tracekit.analyzers.cost.ops.registry import FORMULAS

aten = torch.ops.aten
BF16 = torch.bfloat16


def sdpa(q: list[int], kv: list[int], dtype: str = "float", causal: bool = False) -> Cost:
    types = [dtype] * 3 + ["", "Scalar", "Scalar", "", "Scalar"]
    values = ["", "", "", "", "0.", str(causal), "", "False"]
    shapes = json.dumps([q, kv, kv, [], [], [], [], []])
    cost = cost_of_signature("aten::scaled_dot_product_attention", shapes, json.dumps(types), json.dumps(values))
    assert cost is not None
    return cost


@settings(deadline=None)
@given(
    st.integers(0, 12), st.integers(0, 12), st.none() | st.integers(0, 5), st.none() | st.integers(0, 5), st.booleans()
)
def test_allowed_positions_are_those_of_the_mask(
    queries: int, keys: int, left: int | None, right: int | None, bottom_right: bool
) -> None:
    offset = keys - queries if bottom_right else 0
    distance = torch.arange(keys)[None, :] - torch.arange(queries)[:, None] - offset
    mask = torch.ones(queries, keys, dtype=torch.bool)
    mask = mask if left is None else mask & (distance >= -left)
    mask = mask if right is None else mask & (distance <= right)
    assert allowed_positions(queries, keys, left, right, offset) == int(mask.sum())


@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (1, 513), (4, 9), (9, 4)])
def test_causal_attention_is_aligned_at_the_first_query_and_key(queries: int, keys: int) -> None:
    q, k = torch.randn(1, 1, queries, 8), torch.randn(1, 1, keys, 8)
    identity = torch.eye(keys)[None, None]
    weights = torch.nn.functional.scaled_dot_product_attention(q, k, identity, is_causal=True)
    cost = sdpa([2, 4, queries, 8], [2, 4, keys, 8], causal=True)
    assert cost.flops == 2 * 2 * 4 * (8 + 8) * int((weights > 0).sum())
    assert cost.work == Attention(2, 4, 4, queries, keys, 8, True)


def test_bytes_follow_the_element_size() -> None:
    fp32, fp16 = sdpa([2, 4, 16, 8], [2, 4, 32, 8]), sdpa([2, 4, 16, 8], [2, 4, 32, 8], "c10::Half")
    assert fp32.read_bytes == 4 * (2 * 4 * 16 * 8 + 2 * 2 * 4 * 32 * 8)
    assert fp32.write_bytes == 4 * 2 * 4 * 16 * 8
    assert fp32.bytes == 2 * fp16.bytes
    assert (fp32.precision, fp16.precision) == ("fp32", "fp16")


def test_grouped_heads_share_keys_and_values() -> None:
    cost = sdpa([1, 32, 1, 64], [1, 8, 513, 64], "c10::BFloat16")
    assert cost.flops == 2 * 32 * 513 * (64 + 64)
    assert cost.read_bytes == 2 * (32 * 64 + 2 * 8 * 513 * 64)
    assert cost.work == Attention(1, 32, 8, 1, 513, 64, False)


def test_heads_that_do_not_divide_have_no_cost() -> None:
    shapes, types = "[[1,6,8,8],[1,4,8,8],[1,4,8,8]]", '["float","float","float"]'
    assert cost_of_signature("aten::_scaled_dot_product_flash_attention", shapes, types, "") is None


def test_a_mask_is_read_at_its_own_size() -> None:
    shapes = "[[2,4,16,8],[2,4,32,8],[2,4,32,8],[1,1,16,32],[],[]]"
    types = '["float","float","float","bool","Scalar","Scalar"]'
    cost = cost_of_signature("aten::scaled_dot_product_attention", shapes, types, '["","","","","0.","False"]')
    assert cost is not None
    assert cost.read_bytes - sdpa([2, 4, 16, 8], [2, 4, 32, 8]).read_bytes == 16 * 32


@pytest.mark.parametrize(("heads", "kv_heads", "queries", "keys"), [(4, 4, 16, 16), (4, 4, 8, 24)])
def test_flops_forward_and_backward_are_torchs(heads: int, kv_heads: int, queries: int, keys: int) -> None:
    def forward() -> tuple[torch.Tensor, ...]:
        return aten._scaled_dot_product_efficient_attention(
            meta(2, heads, queries, 64, dtype=BF16),
            meta(2, kv_heads, keys, 64, dtype=BF16),
            meta(2, kv_heads, keys, 64, dtype=BF16),
            None,
            True,
        )

    def backward() -> tuple[torch.Tensor, ...]:
        q, kv = meta(2, heads, queries, 64, dtype=BF16), meta(2, kv_heads, keys, 64, dtype=BF16)
        statistics, seed = meta(2, heads, queries), meta(dtype=torch.int64)
        return aten._scaled_dot_product_efficient_attention_backward(
            q, q, kv, kv, None, q, statistics, seed, seed, 0.0, [True, True, True, False]
        )

    once, back = record_one(forward).cost(), record_one(backward).cost()
    assert once.flops == counted_flops(forward)
    assert back.flops == counted_flops(backward)
    assert back.flops == 2.5 * once.flops
    head = 2 * heads * 64 * 2
    assert once.write_bytes == head * queries + 2 * heads * queries * 4
    assert back.write_bytes == head * (queries + 2 * keys)
    assert back.read_bytes == head * (3 * queries + 2 * keys) + 2 * heads * queries * 4


def test_cpu_flash_attention_has_flops() -> None:
    def run() -> None:
        q = torch.empty(2, 4, 16, 8)
        torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    names = {call.name: call for call in record(run)}
    cost = names["aten::_scaled_dot_product_flash_attention_for_cpu"].cost()
    assert cost.flops == 2 * 2 * 4 * (16 * 17 // 2) * 16


def test_the_flash_kernel_of_a_real_trace() -> None:
    """Length before heads; sizes as in the Qwen trace of an H100."""
    shapes = json.dumps([[16, 559, 16, 64]] * 3 + [[]] * 12)
    types = json.dumps(["c10::BFloat16"] * 3 + [""] * 2 + ["Scalar"] * 6 + [""] * 4)
    values = json.dumps([""] * 5 + ["559", "559", "0.", "True", "False", "0.125"] + [""] * 4)
    cost = cost_of_signature("aten::_flash_attention_forward", shapes, types, values)
    assert cost is not None
    assert cost.flops == 2 * 16 * 16 * (559 * 560 // 2) * 128
    assert cost.work == Attention(16, 16, 16, 559, 559, 64, True, "flash")


def test_flash_attention_2_is_aligned_at_the_last_query_and_key() -> None:
    shapes, types = "[[1,1,4,8],[1,16,4,8],[1,16,4,8],[],[],[]]", '["c10::Half","c10::Half","c10::Half","","",""]'
    cost = cost_of_signature("flash_attn::_flash_attn_forward", shapes, types, '["","","","0.","0.3","True"]')
    assert cost is not None
    assert cost.flops == 2 * 4 * 16 * 16


def test_packed_sequences() -> None:
    """Three sequences of 100, packed: nothing is computed across them."""
    shapes = "[[300,4,64],[300,4,64],[300,4,64],[4],[4],[],[],[],[]]"
    types = '["c10::Half","c10::Half","c10::Half","int","int","Scalar","Scalar","Scalar","Scalar"]'
    values = '["","","","","","100","100","0.","True"]'
    cost = cost_of_signature("aten::_flash_attention_forward", shapes, types, values)
    assert cost is not None
    assert cost.flops == 2 * 3 * 4 * (100 * 101 // 2) * 128
    assert cost.work == Attention(3, 4, 4, 100, 100, 64, True, "flash", packed=True)


def test_memory_efficient_mask_types() -> None:
    """0: none, 1: causal from the top left, 2: from the bottom right."""
    shapes = json.dumps([[1, 4, 2, 8], [1, 10, 2, 8], [1, 10, 2, 8], *[[]] * 7])
    types = json.dumps(["float"] * 3 + [""] * 5 + ["Scalar", "Scalar"])
    visible = []
    for kind in ("0", "1", "2"):
        values = json.dumps([""] * 8 + ["0.", kind])
        cost = cost_of_signature("aten::_efficient_attention_forward", shapes, types, values)
        assert cost is not None
        visible.append(cost.flops // (2 * 2 * 16))
    assert visible == [40, 1 + 2 + 3 + 4, 7 + 8 + 9 + 10]


@pytest.mark.parametrize(
    ("name", "layout"),
    [(name, layout) for name, layout in FORMULAS.items() if name.startswith("aten::") and isinstance(layout, Layout)],
)
def test_layouts_follow_torchs_schemas(name: str, layout: Layout) -> None:
    op = getattr(aten, name.removeprefix("aten::"))
    arguments = [argument.name for argument in op.default._schema.arguments]
    assert arguments[layout.query : layout.query + 3] == ["query", "key", "value"]
    assert arguments[max(layout.causal, layout.mask_type)] == ("is_causal" if layout.causal > 0 else "custom_mask_type")
    assert layout.mask < 0 or arguments[layout.mask] in ("attn_mask", "attn_bias", "bias", "alibi_slopes")
    if layout.statistics >= 0:
        assert arguments[layout.statistics] == "compute_log_sumexp"
    for index, side in ((layout.sequences_q, "_q"), (layout.sequences_k, "_k")):
        assert index < 0 or (arguments[index].startswith("cu") and arguments[index].endswith(side))
    for index, side in zip((layout.left, layout.right), ("left", "right"), strict=True):
        assert index < 0 or arguments[index] == f"window_size_{side}"
