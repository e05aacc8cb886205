"""The tensors that autograd saves, for op lists written by hand."""

import pytest

from tracekit.analyzers.cost import Attention, Cost, Product
from tracekit.analyzers.predict import saved_bytes
from tracekit.analyzers.predict.op_columns import op_list

ROWS, WIDTH, WIDE = 100, 64, 256
NARROW_BYTES, WIDE_BYTES = 4 * ROWS * WIDTH, 4 * ROWS * WIDE


def product(inner, outer, layer):
    weights, read, written = 4 * inner * outer, 4 * ROWS * inner, 4 * ROWS * outer
    work = Product(1, ROWS, outer, inner, weight="b")
    return "aten::mm", layer, Cost(0, weights + read, written, "gemm", "fp32", weights, work)


def pointwise(name, read, written, layer="h.0.mlp"):
    return f"aten::{name}", layer, Cost(0, read, written, "pointwise", "fp32")


def kept(forward, backward=()):
    """Return the bytes that each op of the forward pass saves."""
    rows = [("forward", *each) for each in forward] + [("backward", *each) for each in backward]
    columns = zip(("phase", "name", "layer", "cost"), zip(*rows, strict=True), strict=True)
    return saved_bytes(op_list(**dict(columns))).to_list()


def test_products_of_one_input_keep_it_once():
    attention = [product(WIDTH, WIDTH, f"h.0.attn.{name}") for name in "qkv"]
    assert kept(attention) == [NARROW_BYTES, 0, 0]
    gate, act, up = product(WIDTH, WIDE, "gate"), pointwise("silu", WIDE_BYTES, WIDE_BYTES), product(WIDTH, WIDE, "up")
    both, down = pointwise("mul", 2 * WIDE_BYTES, WIDE_BYTES), product(WIDE, WIDTH, "down")
    assert kept([gate, act, up, both, down]) == [NARROW_BYTES, WIDE_BYTES, 0, 2 * WIDE_BYTES, WIDE_BYTES]


def test_a_product_of_something_new_keeps_it():
    add = pointwise("add", 2 * NARROW_BYTES, NARROW_BYTES)
    assert kept([product(WIDTH, WIDTH, "a"), add, product(WIDTH, WIDTH, "b")]) == [NARROW_BYTES, 0, NARROW_BYTES]


def test_attention_keeps_what_it_reads_and_writes_and_what_follows_reads_that():
    shape = Attention(batch=2, heads=4, kv_heads=2, queries=50, keys=50, head_dim=16, causal=True)
    sums = 4 * 2 * 4 * 50
    fused = "aten::_flash_attention_forward", "h.0.attn", Cost(0, 0, NARROW_BYTES + sums, "attention", "fp32", 0, shape)
    assert kept([fused, product(WIDTH, WIDTH, "o")]) == [(1 + 1 / 2 + 1 / 2 + 1) * NARROW_BYTES + sums, 0]


def test_attention_written_out_keeps_its_scores_once():
    heads, scores = 8, 4 * 8 * ROWS * ROWS
    first = Cost(0, 2 * NARROW_BYTES, scores, "gemm", "fp32", 0, Product(heads, ROWS, ROWS, WIDTH // heads))
    second = Cost(0, NARROW_BYTES + scores, NARROW_BYTES, "gemm", "fp32", 0, Product(heads, ROWS, WIDTH // heads, ROWS))
    softmax = "aten::_softmax", "attn", Cost(0, scores, scores, "softmax", "fp32")
    forward = [("aten::bmm", "attn", first), softmax, ("aten::bmm", "attn", second)]
    assert kept(forward) == [2 * NARROW_BYTES, scores, NARROW_BYTES]
    # A dropout between them makes another tensor of the scores' size, and keeps a byte for each.
    dropout = pointwise("native_dropout", scores, scores + scores // 4, "attn")
    assert kept([*forward[:2], dropout, forward[2]]) == [2 * NARROW_BYTES, scores, scores // 4, NARROW_BYTES + scores]


@pytest.mark.parametrize(("products_in_backward", "weighed"), [(4, NARROW_BYTES), (2, 0)])
def test_a_factor_is_kept_where_the_other_one_needs_a_gradient(products_in_backward, weighed):
    squares = pointwise("pow", NARROW_BYTES, NARROW_BYTES)
    by_deviation = pointwise("mul", NARROW_BYTES + 4 * ROWS, NARROW_BYTES)
    by_weight = pointwise("mul", NARROW_BYTES + 4 * WIDTH, NARROW_BYTES)
    backward = [pointwise("mul", NARROW_BYTES, NARROW_BYTES)] * products_in_backward
    # What was divided is kept for its squares already.
    assert kept([squares, by_deviation, by_weight], backward) == [NARROW_BYTES, 0, weighed]


def test_sums_and_products_with_numbers_keep_nothing():
    same = pointwise("add", 2 * WIDE_BYTES, WIDE_BYTES), pointwise("mul", WIDE_BYTES, WIDE_BYTES)
    assert kept([*same, pointwise("cat", WIDE_BYTES, WIDE_BYTES)]) == [0, 0, 0]
