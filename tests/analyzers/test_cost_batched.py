"""Batching a cost gives the cost at the larger batch, of registered ops; a mixture reads the experts it touches."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.analyzers.cost import Cost, OpCall, batched, cost_of, estimate_ns, hardware
from tracekit.analyzers.cost.ops.registry import FORMULAS
from tracekit.analyzers.predict import narrowed

BATCH = "batch"
"""Placeholder for the batch size, alone or times the size that follows it in a pair."""
F, H, L, I8 = "float", "c10::Half", "long int", "signed char"


def tensor(*dims, dtype=F, strides=None):
    return dims, dtype, None, strides


def value(number):
    return (), "Scalar", number, None


X, ROWS, MATRIX = tensor(BATCH, 8, 16), tensor((BATCH, 8), 16), tensor(16, 32)
HEADS = tensor(BATCH, 4, 8, 16)
IMAGE, CHANNELS = tensor(BATCH, 4, 8, 8), tensor(4)
WINDOW = [value((1, 1)), value((1, 1)), value((1, 1))]
SCORES, TARGETS = tensor((BATCH, 8), 100), tensor((BATCH, 8), dtype=L)

EXAMPLES = {
    "mm": [ROWS, MATRIX],
    "addmm": [tensor(32), ROWS, MATRIX],
    "bmm": [X, tensor(BATCH, 16, 8)],
    "baddbmm": [tensor(BATCH, 8, 8), X, tensor(BATCH, 16, 8)],
    "addbmm": [tensor(8, 8), X, tensor(BATCH, 16, 8)],
    "matmul": [X, MATRIX],
    "linear": [X, tensor(32, 16), tensor(32)],
    "int_mm": [tensor((BATCH, 8), 16, dtype=I8), tensor(16, 32, dtype=I8)],
    "weight_int8pack_mm": [tensor((BATCH, 8), 16, dtype=H), tensor(32, 16, dtype=I8), tensor(32, dtype=H)],
    "weight_int4pack_mm": [
        tensor((BATCH, 8), 16, dtype=H),
        tensor(4, 1, 32, 4, dtype="int"),
        value(16),
        tensor(1, 32, 2, dtype=H),
    ],
    "scaled_mm": [ROWS, MATRIX, tensor((BATCH, 8), 1), tensor(1, 32)],
    "attention": [HEADS, HEADS, HEADS],
    "convolution": [IMAGE, tensor(6, 4, 3, 3), tensor(6), *WINDOW, value(False), value((0, 0)), value(1)],
    "softmax": [SCORES, value(-1), value(False)],
    "softmax_composite": [SCORES, value(-1), value(None)],
    "softmax_backward": [SCORES, SCORES, value(-1), value(6)],
    "nll_loss": [SCORES, TARGETS, tensor(100), value(1)],
    "nll_loss_backward": [tensor(), SCORES, TARGETS, tensor(100)],
    "cross_entropy": [SCORES, TARGETS, value(None), value(1)],
    "elementwise_loss": [ROWS, ROWS, value(1)],
    "elementwise_loss_backward": [tensor(), ROWS, ROWS],
    "layer_norm": [X, value((16,)), tensor(16), tensor(16)],
    "layer_norm_backward": [
        *(X, X, value((16,))),
        *(tensor(BATCH, 8, 1), tensor(BATCH, 8, 1), tensor(16), tensor(16)),
    ],
    "rms_norm": [X, value((16,)), tensor(16)],
    "rms_norm_backward": [X, X, value((16,)), tensor(BATCH, 8, 1), tensor(16)],
    "group_norm": [IMAGE, value(2), CHANNELS, CHANNELS],
    "native_group_norm": [IMAGE, CHANNELS, CHANNELS, value(BATCH), value(4), value(64), value(2)],
    "instance_norm": [IMAGE, CHANNELS, CHANNELS],
    "batch_norm": [IMAGE, *[CHANNELS] * 4, value(True)],
    "batch_norm_with_update": [IMAGE, *[CHANNELS] * 4],
    "embedding": [tensor(100_000, 16), tensor(BATCH, 8, dtype=L)],
    "embedding_backward": [X, tensor(BATCH, 8, dtype=L)],
    "rearrange": [X],
    "repeat": [X, value((1, 2, 1))],
    "pad": [X, value((1, 1))],
    "fill": [X],
    "draw": [X],
    "fill_like": [X],
    "to_copy": [X, value(5)],
    "copy_into": [X, X],
    "argsort": [X, value(-1)],
    "aminmax": [X, value((-1,)), value(False)],
    "gather": [X, value(2), tensor(BATCH, 8, 4, dtype=L)],
    "glu_backward": [tensor(BATCH, 8, 8), X],
    "convolution_backward": [
        *(tensor(BATCH, 6, 8, 8), IMAGE, tensor(6, 4, 3, 3), value((6,)), value((1, 1)), value((1, 1)), value((1, 1))),
        *(value(False), value((0, 0)), value(1)),
    ],
    "batch_norm_backward": [IMAGE, IMAGE, *[CHANNELS] * 5],
    "native_group_norm_backward": [IMAGE, IMAGE, tensor(BATCH, 2), tensor(BATCH, 2), CHANNELS],
    "pool_backward": [tensor(BATCH, 4, 4, 4), IMAGE],
    "masked_softmax": [SCORES, tensor((BATCH, 8), 100, dtype="bool")],
    "gated_activation": [tensor(BATCH, 8, 8), X],
    "elementwise": [X, X, tensor(BATCH, 8)],
    "rms_norm_into": [X, X, tensor(16)],
    "linear_by_handle": [tensor((BATCH, 8), 32), ROWS, tensor(32)],
    "scaled_product_into": [tensor((BATCH, 8), 32), ROWS, MATRIX, tensor((BATCH, 8), 1), tensor(1, 32)],
    "native_dropout": [X, value(0.1), value(True)],
    "glu": [X],
    "where": [tensor(8, 8, dtype="bool"), tensor(BATCH, 8, 8), tensor(BATCH, 8, 8)],
    "divide": [X, X],
    "accumulate": [X, value((-1,)), value(False), value(None)],
    "extreme": [X, value((-1,)), value(False)],
    "search": [X, value(-1), value(False)],
    "variance": [X, value((-1,)), value(1), value(True)],
    "cumulate": [X, value(-1), value(None)],
    "scan_with_index": [X, value(-1)],
    "topk": [X, value(4), value(-1)],
    "pool": [IMAGE, value((2, 2)), value(()), value((0, 0))],
    "adaptive_pool": [IMAGE, value((1, 1))],
    "upsample": [IMAGE, value((16, 16))],
}
"""Inputs by the formula's name. Ops that take other inputs have no cost for these, and are skipped."""


def sized(dims, batch):
    sides = (batch * side[1] if isinstance(side, tuple) else batch if side == BATCH else side for side in dims)
    return tuple(sides)


def at_batch(name, inputs, batch) -> Cost | None:
    shapes = tuple(sized(dims, batch) for dims, *_ in inputs)
    values = tuple(batch if one == BATCH else one for _, _, one, _ in inputs)
    strides = tuple(sized(steps or (), batch) for *_, steps in inputs)
    return cost_of(OpCall(name, shapes, tuple(dtype for _, dtype, *_ in inputs), values, strides))


def of_formula(formula):
    named = formula.func if isinstance(formula, partial) else formula
    return getattr(named, "__name__", type(named).__name__)


def examples():
    """Yield every registered op whose formula has an example, with its inputs."""
    for name, formula in sorted(FORMULAS.items()):
        if of_formula(formula) == "pointwise":
            yield name, [X] * formula.keywords["arity"]
        elif of_formula(formula) in EXAMPLES and at_batch(name, EXAMPLES[of_formula(formula)], 2) is not None:
            yield name, EXAMPLES[of_formula(formula)]


CALLS = dict(examples())


def test_most_ops_of_pytorch_have_an_example():
    assert len(CALLS) > 400
    assert {of_formula(FORMULAS[name]) for name in CALLS} >= set(EXAMPLES)


@settings(max_examples=15)
@given(batch=st.integers(2, 16), factor=st.integers(2, 8))
def test_batching_a_cost_is_the_cost_of_the_batch(batch, factor):
    wrong = [
        name
        for name, inputs in CALLS.items()
        if batched(at_batch(name, inputs, batch), factor) != at_batch(name, inputs, factor * batch)
    ]
    assert wrong == []


OTHER_TYPES = {
    *("attention", "batch_norm", "batch_norm_with_update", "native_group_norm", "layer_norm", "rms_norm"),
    *("embedding", "embedding_backward", "gather", "nll_loss", "nll_loss_backward", "cross_entropy", "native_dropout"),
    *("search", "scan_with_index", "argsort", "topk", "pool", "where", "masked_softmax"),
    *("to_copy", "softmax_backward"),
}
"""Formulas of ops that read or write integers, bools, or statistics in fp32 as well, or say what type they write."""


def of_one_type(name):
    formula = FORMULAS[name]
    answers = isinstance(formula, partial) and formula.keywords.get("result") == "bool"
    return of_formula(formula) not in OTHER_TYPES and not answers


def test_a_narrower_type_is_the_cost_of_the_op_in_that_type():
    for name, inputs in CALLS.items():
        half = [(dims, H if dtype == F else dtype, *rest) for dims, dtype, *rest in inputs]
        if of_one_type(name):
            assert narrowed(at_batch(name, inputs, 2), "fp16") == at_batch(name, half, 2), name


def test_gradients_of_weights_and_sums_over_the_batch_stay_as_large():
    turned = tensor(32, (BATCH, 8), strides=(1, 32))
    for name, inputs in (("aten::mm", [turned, ROWS]), ("aten::sum", [ROWS, value((0,)), value(False), value(None)])):
        before, after = (at_batch(name, inputs, batch) for batch in (4, 32))
        assert before.write_bytes == after.write_bytes
        assert batched(before, 8) == after


@pytest.mark.parametrize(("tokens", "touched"), [(1, 8), (8, 42), (512, 64)])
def test_a_mixture_reads_the_experts_that_its_rows_touch(tokens, touched):
    """OLMoE: 8 of 64 experts a token, chosen apart."""
    shapes = ((tokens, 2048), (64, 2048, 2048), (64, 2048, 1024), (tokens, 8), (tokens, 8))
    cost = cost_of(OpCall("vllm::fused_experts", shapes, (H, H, H, F, L)))
    assert cost.work.groups == touched
    assert cost.weight_bytes == touched * 2 * 2048 * (2048 + 1024)
    assert cost.flops == 2 * 8 * tokens * 2048 * (2048 + 1024)


def test_batching_a_mixture_reads_more_experts_not_longer_rows():
    """A decode step of a mixture: eight times the batch moves at most all experts once, and takes less than eight times
    as long."""
    shapes = ((8, 2048), (64, 2048, 2048), (64,))
    one = cost_of(OpCall("aten::_grouped_mm", shapes, ("c10::BFloat16", "c10::BFloat16", "int")))
    eight = batched(one, 8)
    assert (one.work.k, eight.work.k, eight.work.routed) == (2048, 2048, 64)
    assert one.weight_bytes < eight.weight_bytes < 64 * 2048 * 2048 * 2
    h100 = hardware.find("h100")
    assert 4 < estimate_ns(eight, h100) / estimate_ns(one, h100) < 6
    assert batched(eight, 64).weight_bytes == 64 * 2048 * 2048 * 2
