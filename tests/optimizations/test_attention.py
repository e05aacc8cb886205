"""Unfused attention, forward and backward, and the kernels that can replace it."""

import numpy as np
import pytest
from msgspec.structs import replace
from op_lists import base, elementwise, product

from tracekit.advise import find, predicted_speedup
from tracekit.advise.optimizations.attention_backends import preferred
from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import Attention, hardware
from tracekit.analyzers.predict import built_masks, covered, written_out
from tracekit.analyzers.predict.op_columns import op_list

HEADS, TOKENS, HEAD = 8, 256, 64


def bmm(m, n, k):
    return product(m, n, k, "fp16", batch=HEADS, weights=False)


def scores(family):
    return elementwise(HEADS * TOKENS * TOKENS, "fp16", family)


BACKWARD = (
    ("aten::bmm", bmm(TOKENS, HEAD, TOKENS)),
    ("aten::bmm", bmm(TOKENS, TOKENS, HEAD)),
    ("aten::native_dropout_backward", scores("pointwise")),
    ("aten::_softmax_backward_data", scores("softmax")),
    ("aten::mul", scores("pointwise")),
    ("aten::bmm", bmm(TOKENS, HEAD, TOKENS)),
    ("aten::bmm", bmm(HEAD, TOKENS, TOKENS)),
    ("aten::add", elementwise(TOKENS, "fp16")),
)


def with_ops(baseline, rows):
    columns = {
        "layer": "h.0.attn",
        "layer_type": "Attention",
        "phase": "backward",
        "category": "kernel",
        "message": None,
    }
    numbers = {"host_ns": 10_000.0, "kernel_ns": 50_000.0, "launches": 1, "sync": False}
    names, costs = zip(*rows, strict=True)
    same = {name: [value] * len(rows) for name, value in (columns | numbers).items()}
    return replace(baseline, ops=op_list(name=names, call=names, cost=costs, **same))


def test_a_backward_pass_is_found_and_becomes_one_op():
    baseline = with_ops(base(), BACKWARD)
    (pattern,) = written_out(baseline)
    assert (pattern.first, pattern.last) == (0, 6)
    assert list(covered(baseline)) == [True] * 7 + [False]
    element, matrix = 2, HEADS * TOKENS * HEAD
    assert pattern.cost.flops == 5 * HEADS * TOKENS * TOKENS * HEAD
    assert pattern.cost.read_bytes == 5 * element * matrix
    assert pattern.cost.write_bytes == 3 * element * matrix
    after = find("sdpa").transform(baseline, "expected")
    assert len(after) == 2
    assert after.host_ns[0] == pytest.approx(0.45 * 70_000)


def test_under_autocast_the_softmax_of_a_backward_pass_is_wider_than_its_products():
    wide = elementwise(HEADS * TOKENS * TOKENS, "fp32", "softmax")
    narrow = [row for row in BACKWARD if row[0] != "aten::_softmax_backward_data"]
    (pattern,) = written_out(with_ops(base(), [*narrow[:3], ("aten::_softmax_backward_data", wide), *narrow[3:]]))
    assert (pattern.first, pattern.last, pattern.cost.precision) == (0, 6, "fp16")


HEADS_OF_ALL = elementwise(HEADS * TOKENS * HEAD, "fp16", "copy")
MASK = elementwise(TOKENS * TOKENS, "fp16")
SMALL = elementwise(TOKENS, "fp16")
FORWARD = (
    ("aten::cat", HEADS_OF_ALL),
    ("aten::copy_", HEADS_OF_ALL),
    ("aten::copy_", HEADS_OF_ALL),
    ("aten::bmm", bmm(TOKENS, TOKENS, HEAD)),
    ("aten::mul", scores("pointwise")),
    ("aten::add", scores("pointwise")),
    ("aten::_softmax", scores("softmax")),
    ("aten::bmm", bmm(TOKENS, HEAD, TOKENS)),
    ("aten::copy_", HEADS_OF_ALL),
    ("aten::copy_", SMALL),
)
BUILT = (
    *(("aten::arange", SMALL),) * 3,
    ("aten::add", SMALL),
    ("aten::arange", SMALL),
    ("aten::add", SMALL),
    ("aten::le", MASK),
    ("aten::copy_", SMALL),
    ("aten::fill_", SMALL),
    ("aten::where", MASK),
)
POSITIONS = (("aten::arange", SMALL), ("aten::add", SMALL))


def test_copies_of_heads_go_with_the_attention_that_needs_them():
    baseline = with_ops(base(), FORWARD)
    (pattern,) = written_out(baseline)
    assert (pattern.begin, pattern.first, pattern.last, pattern.end) == (1, 3, 7, 8)
    after = find("sdpa").transform(baseline, "expected")
    assert list(after.name) == ["aten::cat", "aten::scaled_dot_product_attention", "aten::copy_"]
    assert after.host_ns[1] == pytest.approx(0.45 * 6 * 10_000)
    assert after.cost[1].work.causal


def test_attention_without_a_mask_is_of_all_to_all():
    baseline = with_ops(base(), [row for row in FORWARD if row[0] != "aten::add"])
    (pattern,) = written_out(baseline)
    assert not pattern.cost.work.causal
    assert pattern.cost.flops == 4 * HEADS * TOKENS * TOKENS * HEAD


def test_a_backward_pass_is_masked_as_its_forward_pass_is():
    for forward in (FORWARD, [row for row in FORWARD if row[0] != "aten::add"]):
        one, gradient = written_out(with_ops(base(), [*forward, *BACKWARD]))
        assert one.cost.work.causal == gradient.cost.work.causal == (forward is FORWARD)


def test_a_mask_for_attention_written_out_is_not_built_for_fused():
    baseline = with_ops(base(), (*POSITIONS, *BUILT, *FORWARD))
    assert list(built_masks(baseline)) == [False] * 2 + [True] * 10 + [False] * 10
    after = find("sdpa").transform(baseline, "expected")
    assert list(after.name[:3]) == ["aten::arange", "aten::add", "aten::cat"]
    assert len(after) == 2 + 3
    assert len(find("sdpa").transform(baseline, "worst")) == 2 + 10 + 3


@pytest.mark.parametrize(
    "rows",
    [
        (*BUILT[:6], ("aten::index", SMALL), *BUILT[6:], *FORWARD),
        (*BUILT[1:], *FORWARD),
        (*BUILT[:-1], ("aten::where", SMALL), *FORWARD),
        BUILT,
    ],
    ids=["of padding", "of three vectors", "of another size", "without attention"],
)
def test_other_masks_stay(rows):
    assert not built_masks(with_ops(base(), rows)).any()


@pytest.mark.parametrize(
    ("gpu", "half", "full"),
    [
        ("t4", "efficient", "efficient"),
        ("a100", "flash", "efficient"),
        ("l4", "flash", "efficient"),
        ("h200", "cudnn", "efficient"),
    ],
)
def test_the_backend_that_pytorch_prefers(gpu, half, full):
    device = hardware.find(gpu)
    assert preferred(device, half=True) == half
    assert preferred(device, half=False) == full


def test_a_named_backend_replaces_the_one_that_is_used():
    fused = find("sdpa").applied(base("a100", tokens=4096, keys=4096, precision="fp16", batch_size=1), "expected")
    assert find("sdpa").objection(fused)
    efficient = find("sdpa:efficient")
    assert efficient.objection(fused) is None
    after = efficient.transform(fused, "expected")
    backends = {cost.work.backend for cost in after.cost if isinstance(cost.work, Attention)}
    assert backends == {"efficient"}
    assert after.kernel_ns.sum() > fused.ops.kernel_ns.sum()
    assert "already" in efficient.objection(replace(fused, ops=after))
    assert "EFFICIENT_ATTENTION" in efficient.how_to(fused)


def test_flash_attention_2_loses_where_the_host_sets_the_pace():
    decode = find("sdpa").applied(base("a100", tokens=1, precision="fp16", batch_size=1), "expected")
    gain = predicted_speedup(find("sdpa:flash-attention-2"), decode)
    assert gain.expected < 1
    after = find("sdpa:flash-attention-2").transform(decode, "worst")
    layers = 4
    assert len(after) - len(decode.ops) == layers * (1 + 12 + 2 + 2)
    assert after.sync.sum() == 2 * layers


def test_backends_that_a_gpu_does_not_have_are_refused():
    half = base("t4", tokens=64, precision="fp16")
    assert "flash attention" in find("sdpa:flash").objection(half)
    assert "cuDNN" in find("sdpa:cudnn").objection(base("a100", tokens=64, precision="fp16"))
    with pytest.raises(InputError, match="backend"):
        find("sdpa:xformers")


def test_without_shapes_attention_is_found_by_names_and_its_products_remain_in_part():
    run = base(layers=2)
    unsized = replace(run, ops=run.ops.assign(cost=None))
    assert [(each.first, each.last) for each in written_out(unsized)] == [(2, 5), (14, 17)]
    products = run.ops.kernel_ns[[2, 5, 14, 17]].sum()
    others = run.ops.kernel_ns.sum() - run.ops.kernel_ns[[2, 3, 4, 5, 14, 15, 16, 17]].sum()
    sdpa = find("sdpa")
    assert sdpa.obstacle(unsized) is None
    for outcome, part in (("worst", 1.0), ("expected", 0.4), ("best", 0.1)):
        assert sdpa.applied(unsized, outcome).ops.kernel_ns.sum() == pytest.approx(others + part * products)


def test_without_shapes_the_backward_pass_is_found_too():
    unsized = with_ops(base(), [(name, None) for name, _ in BACKWARD])
    (pattern,) = written_out(unsized)
    assert (pattern.first, pattern.last, pattern.products) == (0, 6, (0, 1, 5, 6))
    assert find("sdpa").transform(unsized, "expected").kernel_ns[0] == pytest.approx(0.4 * 4 * 50_000)


def test_a_softmax_of_a_router_is_no_attention():
    run = base(layers=1)
    names = np.where(np.arange(len(run.ops)) == 3, "aten::mm", run.ops.name)
    assert not written_out(replace(run, ops=run.ops.assign(cost=None, name=names)))
