"""Ops that stay in 32 bits in a 16-bit model, and their casts."""

import numpy as np
import pandas as pd
from msgspec.structs import replace
from op_lists import base, elementwise

from tracekit.advise import find
from tracekit.advise.optimizations.half_precision import in_half
from tracekit.analyzers.cost import Attention, Cost
from tracekit.analyzers.predict.op_columns import op_list

TOKENS, WIDTH, HEADS = 64, 512, 8


def with_written_norms(precision):
    """Return the run with each norm replaced by its unfused ops."""
    changed = base(tokens=TOKENS, keys=TOKENS, width=WIDTH, heads=HEADS, layers=2, precision=precision)
    rows = []
    for _, row in changed.ops.frame().iterrows():
        names = ("pow", "mean", "add", "rsqrt", "mul", "mul") if row.layer_type == "LayerNorm" else ()
        norm = [row.replace({row["name"]: f"aten::{name}"}) for name in names]
        rows += [each.mask(each.index == "cost", elementwise(TOKENS * WIDTH, "fp32")) for each in norm] or [row]
    frame = pd.DataFrame(rows)
    return replace(changed, ops=op_list(**{name: frame[name].tolist() for name in frame}))


def with_safe_softmax():
    changed = base(tokens=TOKENS, keys=TOKENS, width=WIDTH, heads=HEADS, layers=2, precision="fp32")
    asked = np.where(changed.ops.name == "aten::div", "aten::isneginf", changed.ops.name)
    return replace(changed, ops=changed.ops.assign(name=asked))


def casts(after):
    return after[after.name == "aten::_to_copy"]


def test_a_norm_written_out_keeps_its_numbers_between_two_casts():
    before = with_written_norms("fp32")
    after = find("half-precision").transform(before, "expected")
    assert len(casts(after)) == 2 * 2
    assert {cost.write_bytes for cost in casts(after).cost} == {2 * TOKENS * WIDTH}
    squares = after[after.name == "aten::pow"]
    assert [cost.precision for cost in squares.cost] == ["fp32"] * 2
    assert after.host_ns.sum() > before.ops.host_ns.sum()


def test_the_math_backend_keeps_its_products_between_five():
    after = find("half-precision").transform(with_safe_softmax(), "expected")
    assert len(casts(after)) == 5 * 2
    products = after[after.name == "aten::bmm"]
    assert {cost.precision for cost in products.cost} == {"fp32"}
    assert {cost.precision for cost in after.cost[after.name == "aten::addmm"]} == {"bf16"}


def test_attention_of_ones_own_and_whole_norms_have_no_casts():
    plain = base(tokens=TOKENS, width=WIDTH, heads=HEADS, precision="fp32")
    assert not len(casts(find("half-precision").transform(plain, "expected")))


def test_a_run_in_16_bits_has_them_already():
    assert not len(casts(in_half(with_written_norms("bf16"), "expected")))


def attending(layers):
    """Return the run of these layers with a call of fused attention, in 32 bits, in place of each softmax."""
    run = base(tokens=TOKENS, keys=TOKENS, width=WIDTH, heads=HEADS, layers=2, precision=layers)
    costs = run.ops.cost.copy()
    shape = Attention(1, HEADS, HEADS, 1 << 14, 1 << 14, WIDTH // HEADS, False)
    for place in np.flatnonzero(run.ops.name == "aten::_softmax"):
        costs[place] = Cost(1 << 38, 1 << 27, 1 << 25, "attention", "fp32", work=shape)
    return replace(run, ops=run.ops.assign(cost=costs))


def test_attention_that_a_model_of_16_bits_runs_in_32_is_no_gain_of_a_weight_format():
    """The program has cast what it reads, and does so again."""
    assert find("half-precision").objection(attending("bf16"))
    assert find("half-precision").objection(attending("fp32")) is None
    left = {layers: in_half(attending(layers), "expected").cost for layers in ("bf16", "fp32")}
    assert "fp32" in {cost.precision for cost in left["bf16"]}
    assert {cost.precision for cost in left["fp32"]} == {"bf16"}


def test_casts_that_did_nothing_in_32_bits_copy_in_16():
    """Those of norms are counted once, others come on top."""
    norms, other = (TOKENS * WIDTH,) * 4, (TOKENS, TOKENS, 3)
    run = replace(with_written_norms("fp32"), idle_casts=norms + other)
    after = find("half-precision").transform(run, "expected")
    assert sorted(cost.write_bytes for cost in casts(after).cost) == [6, *[2 * TOKENS] * 2, *[2 * TOKENS * WIDTH] * 4]
