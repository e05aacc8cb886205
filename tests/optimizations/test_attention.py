"""Attention written out, forward and backward, and the kernels that can take its place."""

from dataclasses import replace

import pandas as pd
import pytest
from op_lists import base, elementwise, product

from analyzers import hardware
from analyzers.costs.call import Attention
from analyzers.errors import InputError
from analyzers.prediction.oplist import OP_LIST
from tracekit.optimizations import find
from tracekit.optimizations.attention_backends import preferred
from tracekit.optimizations.predict import predicted_speedup
from tracekit.optimizations.written_attention import covered, written_out

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
    table = pd.DataFrame([{"name": name, "cost": cost, **columns, **numbers} for name, cost in rows])
    return replace(baseline, ops=OP_LIST.frame({name: table[name].to_list() for name in baseline.ops.columns}))


def test_a_backward_pass_is_found_and_becomes_one_op():
    baseline = with_ops(base(), BACKWARD)
    (found,) = written_out(baseline)
    assert (found.first, found.last) == (0, 6)
    assert list(covered(baseline)) == [True] * 7 + [False]
    element, matrix = 2, HEADS * TOKENS * HEAD
    assert found.cost.flops == 5 * HEADS * TOKENS * TOKENS * HEAD
    assert found.cost.read_bytes == 5 * element * matrix
    assert found.cost.write_bytes == 3 * element * matrix
    after = find("sdpa").transform(baseline, "expected")
    assert len(after) == 2
    assert after.host_ns.iloc[0] == pytest.approx(0.5 * 70_000)


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
    backends = {cost.shape.backend for cost in after.cost if isinstance(cost.shape, Attention)}
    assert backends == {"efficient"}
    assert after.kernel_ns.sum() > fused.ops.kernel_ns.sum()
    assert "already" in efficient.objection(replace(fused, ops=after))
    assert "EFFICIENT_ATTENTION" in efficient.how_to(fused)


def test_flash_attention_2_loses_where_the_host_sets_the_pace():
    decode = find("sdpa").applied(base("a100", tokens=1, precision="fp16", batch_size=1), "expected")
    found = predicted_speedup(find("sdpa:flash-attention-2"), decode)
    assert found.high < 1
    after = find("sdpa:flash-attention-2").transform(decode, "low")
    layers = 4
    assert len(after) - len(decode.ops) == layers * (1 + 12 + 2 + 2)
    assert after.sync.sum() == 2 * layers


def test_backends_that_a_gpu_does_not_have_are_refused():
    half = base("t4", tokens=64, precision="fp16")
    assert "flash attention" in find("sdpa:flash").objection(half)
    assert "cuDNN" in find("sdpa:cudnn").objection(base("a100", tokens=64, precision="fp16"))
    with pytest.raises(InputError, match="backend"):
        find("sdpa:xformers")
