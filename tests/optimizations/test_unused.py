"""A backward pass that goes on into frozen layers, and those that an optimizer needs; logits that nothing reads."""

import json
import math
from collections import Counter

import op_lists
import pytest
from msgspec.structs import replace
from test_waste import ENGINE, copy, op, run
from test_work_again import found, given

from tracekit.advise import find
from tracekit.analyzers.cost import Cost, Recurrent

HEAD, WIDE, BIAS = (10, 512), (512, 2048), (10,)


def gradient(shape, rows=4096):
    """Return the backward pass of a layer: of its input, its weight, and its bias."""
    call, (m, n) = ENGINE + "AddmmBackward0", shape
    weight = op_lists.product(m, n, rows, "bf16")
    weight = replace(weight, work=replace(weight.work, gradient=True))
    return [
        op("aten::mm", op_lists.product(rows, n, m, "bf16"), call=call, phase="backward"),
        op("aten::mm", weight, call=call, phase="backward"),
        op("aten::sum", call=call, ns=5_000.0, phase="backward"),
    ]


def update(*shapes):
    lists = json.dumps([[list(shape) for shape in shapes]] * 2)
    return op("aten::_fused_adamw_", ns=9_000.0, phase="optimizer") | {
        "inputs": (lists, '["TensorList", "TensorList"]')
    }


LONG = op("aten::_fused_adamw_", ns=9_000.0, phase="optimizer") | {
    "inputs": ("[[],[],[]]", '["TensorList","TensorList","Scalar"]')
}


def older(shape):
    call = ENGINE + "torch::autograd::AccumulateGrad"
    return op("aten::add_", call=call, ns=2_000.0, phase="backward") | given(("float", *shape), ("float", *shape))


FORWARD = op("aten::mm", op_lists.product(4096, 512, 2048, "bf16"), phase="forward")


def unused(*rows):
    return found("unused-gradients", run(FORWARD, *rows))


def test_the_backward_pass_behind_the_last_gradient_that_is_used_disappears():
    step = [FORWARD, *gradient(HEAD), *gradient(WIDE) * 4, update(HEAD, BIAS)]
    assert unused(*step[1:])
    left = find("unused-gradients").transform(run(*step), "expected")
    assert Counter(left.name) == Counter({"aten::mm": 3, "aten::sum": 1, "aten::_fused_adamw_": 1})


def test_a_list_that_is_too_long_to_be_recorded_may_hold_any_tensor():
    assert not unused(*gradient(HEAD), *gradient(WIDE) * 4, update(HEAD, BIAS), LONG)


def test_an_image_that_is_trained_has_no_gradient_in_the_sums_for_biases_but_one_behind_all_layers():
    def layer(shape):
        bias = given(("c10::BFloat16", 4096, shape[0]))
        return [row | (bias if row["name"] == "aten::sum" else {}) for row in gradient(shape)]

    behind = [*layer(HEAD), *[*layer(WIDE), older(WIDE)] * 4]

    def left(trained):
        step = run(FORWARD, *behind, update(trained))
        return Counter(find("unused-gradients").transform(step, "expected").name)["aten::mm"]

    assert left(BIAS) == 1 + 2
    assert left((32, 1, 128, 128)) == 1 + 2 + 4, "weights' gradients alone disappear"


def test_a_sum_of_what_is_as_large_as_a_trained_image_is_its_gradient_only_if_the_sum_is_as_large():
    image, features = (32, 1, 128, 128), given(("float", 32, 96, 128, 128))

    def left(shape):
        cost = Cost(0, 4 * math.prod((32, 96, 128, 128)), 4 * math.prod(shape), "reduction", "fp32")
        summed = op("aten::sum", cost, call=ENGINE + "ConvolutionBackward0", phase="backward") | features
        layers = [*gradient(HEAD)[:2], summed, *[*gradient(WIDE)[:2], older(WIDE)] * 4]
        step = run(FORWARD, *layers, update(image))
        return Counter(find("unused-gradients").transform(step, "expected").name)["aten::mm"]

    assert left((96,)) == 1 + 2 + 4, "weights' gradients alone disappear"
    assert left(image) == 1 + 2


def test_layers_that_are_trained_before_frozen_ones_need_the_backward_pass():
    assert not unused(*gradient(WIDE) * 4, *gradient(HEAD), update(HEAD, BIAS))
    assert not unused(*gradient(HEAD), *gradient(WIDE) * 4, update(HEAD, BIAS, *[BIAS] * 8)), "norms of all layers"
    assert not unused(*gradient(HEAD), *gradient(WIDE) * 4, update((64, 64), BIAS)), "a flat copy of the weights"
    assert not unused(*gradient(HEAD), *gradient(WIDE) * 4, update(HEAD, *[WIDE] * 4, *[BIAS] * 5))


def test_a_weight_that_is_used_again_and_again_has_its_gradients_added_up():
    head, summed = gradient(HEAD), op("aten::add_", call=ENGINE + "TBackward0", ns=2_000.0, phase="backward")
    cells = [*gradient(WIDE), *[*gradient(WIDE), summed | given(("float", *WIDE), ("float", *WIDE))] * 3]
    assert not unused(*head, *cells, update(HEAD, WIDE, BIAS, BIAS))
    assert unused(*head, *cells, update(HEAD, BIAS))


GATES = ((768, 512), (768, 256), (768,), (768,))


def recurrent(*, trained=True):
    """Return the backward pass of a recurrent layer: of its input, and of its weights, which are added to zeros."""
    call, packed = ENGINE + "CudnnRnnBackward0", 768 * (512 + 256 + 2)
    work = Recurrent(16, 96, 512, 256, 256, 3, 1, 1, backward=True)
    lists = json.dumps([[16, 6, 512], GATES, [], [packed]]), '["float","TensorList","Scalar","float"]'
    layer = op("aten::_cudnn_rnn_backward", Cost(1, 1, 1, "other", "fp32", work=work), call=call, phase="backward")
    zeros = op("aten::fill_", call=call, ns=2_000.0, phase="backward") | given(("float", packed))
    return [layer | {"inputs": lists}, *([zeros, layer | {"inputs": lists}] if trained else [])]


def test_the_weights_of_a_recurrent_layer_have_their_gradients_from_one_op():
    after = [*gradient(WIDE) * 4, update(HEAD, BIAS, *GATES)]
    base = run(FORWARD, *gradient(HEAD), *recurrent(), *after)
    assert found("unused-gradients", base)
    left = find("unused-gradients").transform(base, "expected")
    assert Counter(left.name)["aten::_cudnn_rnn_backward"] == 2 and Counter(left.name)["aten::mm"] == 3
    assert not unused(*gradient(HEAD), *recurrent(trained=False), *after), "the gradient of its input alone"
    assert not unused(*gradient(HEAD), *gradient(WIDE) * 4, *recurrent(), update(HEAD, BIAS, *GATES))


def test_parts_of_a_packed_weight_are_trained():
    part = (512, 512)
    assert unused(*gradient(part) * 3, *gradient(part) * 4, update((1536, 512), *[BIAS] * 3))
    assert not unused(*gradient(part) * 3, update((1536, 512), *[BIAS] * 3))


def test_gradients_that_are_added_to_older_ones_while_others_are_new_are_of_frozen_layers():
    optimizer = op("aten::_fused_adamw_", ns=9_000.0, phase="optimizer")
    frozen = [each for _ in range(4) for each in (*gradient(WIDE), older(WIDE))]
    assert unused(*gradient(HEAD), *frozen, optimizer)
    without_shapes = [each | {"inputs": None} for each in frozen]
    assert not unused(*gradient(HEAD), *without_shapes, optimizer)
    bare = [[row | {"inputs": None, "cost": None} for row in rows] for rows in (gradient(HEAD), gradient(WIDE))]
    tower = [each for _ in range(8) for each in (*bare[1], *[older(WIDE) | {"inputs": None}] * 2)]
    assert unused(*bare[0], *tower, optimizer)
    assert not unused(*bare[0], *tower, optimizer, op("aten::fill_", call="aten::zero_", ns=2_000.0, phase="optimizer"))
    kept = find("unused-gradients").transform(run(*tower, *bare[0] * 8, optimizer), "expected")
    assert (kept.name == "aten::mm").sum() == 8 + 16, "a network before what is trained"
    assert not unused(*bare[0], *tower, FORWARD, *bare[0], *tower, optimizer), "parts of a batch"
    critic = [*bare[0], *tower, optimizer]
    behind = [*critic, FORWARD, *critic, FORWARD, *bare[0], *bare[1] * 8, optimizer]
    assert "generator(noise)" in find("unused-gradients").how_to(run(FORWARD, *behind))
    used, step = [*gradient(HEAD), *gradient(WIDE) * 4, optimizer], [FORWARD, *gradient(HEAD), *frozen, optimizer] * 2
    left = find("unused-gradients").transform(run(*step, FORWARD, *used), "expected")
    assert left.index[-len(used) :].tolist() == list(range(len(step) + 1, len(step) + 1 + len(used))), "a third pass"
    assert not unused(*gradient(HEAD), older(HEAD), *frozen, optimizer), "the second of two backward passes"
    assert not unused(*gradient(HEAD), *gradient(WIDE), *gradient(WIDE), older(WIDE), optimizer), "one of two losses"
    assert not unused(*gradient(HEAD), *frozen, optimizer, op("aten::zero_", ns=2_000.0, phase="optimizer"))


def test_embeddings_that_take_gradients_before_frozen_layers_cost_the_backward_pass_through_them():
    table, inputs = (30_000, 512), [gradient(WIDE)[0]] * 8
    assert unused(*gradient(HEAD), *inputs, older(table), update(HEAD, BIAS))
    assert unused(*gradient(HEAD), *inputs, older(table), LONG)
    assert not unused(*gradient(HEAD), *inputs, older(table), update(HEAD, BIAS, table)), "trained in several passes"
    assert not unused(*gradient(HEAD), *inputs, update(HEAD, BIAS)), "the gradient of an input, which may be read"
    zeros = op("aten::fill_", call=ENGINE + "EmbeddingBackward0", phase="backward") | given(("float", *table))
    assert unused(*gradient(HEAD), *inputs, zeros, update(HEAD, BIAS)), "reset, as by model.zero_grad()"
    assert not unused(*gradient(HEAD), *inputs, zeros, update(HEAD, BIAS, table))


def test_an_input_that_alone_is_trained_needs_no_gradients_of_weights_though_no_shapes_are_known():
    adam, call = op("aten::_fused_adam_", ns=9_000.0, phase="optimizer"), ENGINE + "ConvolutionBackward0"
    layer = [op(f"aten::{name}", call=call, ns=1e4, phase="backward") for name in ("convolution_backward", "sum")]
    accumulated = [row | {"inputs": None} for row in [older(WIDE)] * 2]
    known = op("aten::scalar_tensor", op_lists.elementwise(1, "fp32"), phase="backward")
    step = run(FORWARD, known, *[*layer, *accumulated] * 4, adam)
    left = find("unused-gradients").transform(step, "expected")
    assert Counter(left.name)["aten::convolution_backward"] == 4 and not (left.name == "aten::add_").any()
    assert left.kernel_ns[left.name == "aten::convolution_backward"].tolist() == [0.5e4] * 4
    assert not found("unused-gradients", run(FORWARD, *[*layer, *accumulated] * 4, FORWARD, *layer, adam))


def moved(sizes, name):
    return [copy(float(size), ns=90_000.0, name=name) for size in sizes]


def test_tensors_that_leave_and_come_back_stay_if_the_memory_holds_them():
    sizes, back = (1 << 20, 1 << 21, 1 << 22), ("Memcpy DtoH (Device -> Pinned)", "Memcpy HtoD (Pinned -> Device)")
    base = run(FORWARD, *[each for name in back for each in moved(sizes * 4, name)])
    assert found("copied-again", base) and len(find("copied-again").transform(base, "expected")) == 1
    assert not found("copied-again", run(FORWARD, *moved(sizes * 4, back[1]))), "weights that never return"
    assert not found("copied-again", run(FORWARD, *[each for name in back for each in moved(sizes[:1] * 12, name)]))
    huge = [size << 13 for size in sizes]
    assert not found("copied-again", run(FORWARD, *[each for name in back for each in moved(huge * 4, name)]))


MAPS = ("float", 7, 1024, 1024)


def cropped(*readers):
    """Return a step that copies maps whole, and picks elements of them."""
    brings = copy(4 * 7 << 20, ns=900_000.0) | given(MAPS, MAPS)
    return run(FORWARD, brings, *[op("aten::index", ns=ns) | given(MAPS) for ns in readers])


def test_maps_that_are_copied_whole_to_pick_a_small_part_stay():
    left = find("copied-again").transform(cropped(1_000.0, 1_000.0), "expected")
    assert "aten::copy_" not in left.name and "pick on the host" in find("copied-again").how_to(cropped(1_000.0))


def test_a_rollout_of_which_minibatches_pick_all_or_that_other_ops_read_is_new():
    assert not found("copied-again", cropped(*[2_000.0] * 8))
    reads = op("aten::mul", ns=1_000.0) | given(MAPS)
    brings = copy(4 * 7 << 20, ns=900_000.0) | given(MAPS, MAPS)
    assert not found("copied-again", run(FORWARD, brings, op("aten::index", ns=1_000.0) | given(MAPS), reads))


def backward_pass(*nodes, **more):
    rows = [each | {"node": node} for node in nodes for each in gradient(WIDE)]
    return [*[row | more for row in rows], op("aten::mean", ns=2_000.0, phase="forward")]


def test_the_first_of_two_backward_passes_through_a_graph_disappears():
    first, second = backward_pass(9, 7, 6), backward_pass(8, 7, 6)
    assert found("backward-again", run(FORWARD, *first, *second, update(WIDE)))
    left = find("backward-again").transform(run(FORWARD, *first, *second, update(WIDE)), "expected")
    assert Counter(left.name)["aten::mm"] == 1 + 2 * 4
    assert not found("backward-again", run(FORWARD, *backward_pass(9, 7, 6), *backward_pass(5, 4, 3), update(WIDE)))
    assert not found("backward-again", run(FORWARD, *backward_pass(-1, -1), *backward_pass(-1, -1), update(WIDE)))


def test_gradients_of_gradients_and_products_of_large_kernels_need_each_pass():
    of_gradients = backward_pass(7, 6, differentiable=True)
    assert not found("backward-again", run(FORWARD, *of_gradients, *backward_pass(9, 7, 6), update(WIDE)))
    rows = [each for _ in range(16) for each in backward_pass(7, 6)]
    assert not found("backward-again", run(FORWARD, *rows, update(WIDE)))
    assert found("backward-again", run(FORWARD, *rows, older(WIDE), update(WIDE))), "windows of a state"


PICKED = [op("aten::sum", ns=1_000.0, phase="forward"), op("aten::fill_", ns=700.0, call="aten::ones_like")]


@pytest.mark.parametrize(
    ("passes", "between", "rows"),
    [
        (16, PICKED, True),
        (6, PICKED, False),
        (16, [op("aten::dot", ns=1_000.0), op("aten::add", ns=1_000.0)], False),  # conjugate gradients
    ],
)
def test_rows_of_a_jacobian_are_one_pass(passes, between, rows):
    one = [each | {"node": node, "ns": 2_000.0} for node in (9, 8, 7, 6, 5) for each in gradient(WIDE)]
    base = run(FORWARD, *[each for _ in range(passes) for each in [*one, *between]], update(WIDE))
    assert found("gradients-one-by-one", base) == rows
    if rows:
        assert "is_grads_batched" in find("gradients-one-by-one").how_to(base)
        left = find("gradients-one-by-one").transform(base, "expected")
        assert left.host_ns.sum() < 0.4 * base.ops.host_ns.sum()


M, N = 4096, 32768
TOKENS = op("aten::embedding", ns=9_000.0)
LOGITS = op("aten::mm", op_lists.product(M, N, 1024, "bf16"))
ROWS = given(("c10::BFloat16", 8, 512, N))
SOFTMAX = op("aten::_log_softmax", Cost(0, 2 * M * N, 2 * M * N, "softmax", "bf16")) | ROWS
FEW = op("aten::sub", Cost(0, 64, 32, "pointwise", "bf16")) | given(("float", 8), ("float", 8))


def test_a_softmax_of_all_logits_is_unused_like_them_unless_an_op_reads_each_row():
    assert found("unused-logits", run(TOKENS, LOGITS, SOFTMAX, FEW))
    labels = op("aten::gather", Cost(0, 8 * M, 2 * M, "gather", "bf16")) | ROWS
    assert not found("unused-logits", run(TOKENS, LOGITS, SOFTMAX, labels, FEW))
    assert not found("unused-logits", run(TOKENS, LOGITS, SOFTMAX))
    left = find("unused-logits").transform(run(TOKENS, LOGITS, SOFTMAX, FEW), "expected").kernel_ns
    assert left[2] < 0.1 * run(TOKENS, LOGITS, SOFTMAX).ops.kernel_ns[2]
    assert not found("unused-logits", run(LOGITS, SOFTMAX, FEW)), "rows of something else than tokens"


def test_logits_are_unused_if_the_op_that_reads_all_of_them_picks_a_few_rows():
    picks, last = op("aten::index") | ROWS, Cost(0, 32 * N, 32 * N, "pointwise", "bf16")
    assert found("unused-logits", run(TOKENS, LOGITS, picks, op("aten::div", last) | given(("c10::BFloat16", 8, N))))
    labels = op("aten::div", last) | given(("c10::BFloat16", 8, 512))
    assert not found("unused-logits", run(TOKENS, LOGITS, picks, labels))
    assert not found(
        "unused-logits", run(TOKENS, LOGITS, picks, op("aten::div", last) | given(("c10::BFloat16", M // 2, N)))
    )


SIDE, INNER = 8192, 1024
PAIRS = given(("float", SIDE, SIDE))
BETWEEN = op("aten::mm", op_lists.product(SIDE, SIDE, 64, "fp32"), call="aten::cdist")
BETWEEN |= given(("float", SIDE, 64), ("float", 64, SIDE))
KERNEL = op("aten::exp", op_lists.elementwise(SIDE**2, "fp32")) | PAIRS
EXPLAINED = op("aten::mm", op_lists.product(SIDE, SIDE, INNER, "fp32")) | given(
    ("float", SIDE, INNER), ("float", INNER, SIDE)
)
LESS = op("aten::sub", op_lists.elementwise(SIDE**2, "fp32")) | given(("float", SIDE, SIDE), ("float", SIDE, SIDE))
VARIANCES = op("aten::sqrt", op_lists.elementwise(SIDE, "fp32")) | given(("float", SIDE))


def test_of_a_difference_of_products_of_which_the_diagonal_is_read_one_computes_the_diagonal():
    base = run(BETWEEN, KERNEL, EXPLAINED, LESS, VARIANCES)
    assert found("unused-rows", base)
    assert "diagonal" in find("unused-rows").how_to(base)
    left = find("unused-rows").transform(base, "expected").kernel_ns
    assert (left[:4] < 0.01 * base.ops.kernel_ns[:4]).all()


@pytest.mark.parametrize(
    "step",
    [
        [EXPLAINED, LESS, VARIANCES],  # of what stays from the last step
        [BETWEEN, EXPLAINED, LESS | {"name": "aten::sub_"}, VARIANCES],  # into a tensor that may stay
        [BETWEEN, KERNEL, EXPLAINED, LESS, op("aten::linalg_cholesky_ex", ns=9_000.0) | PAIRS, VARIANCES],
        [BETWEEN, KERNEL, EXPLAINED, LESS, op("aten::sum", ns=9_000.0) | PAIRS, VARIANCES],  # of all pairs
    ],
)
def test_all_elements_of_a_difference_of_products_are_work_if_an_op_reads_them(step):
    assert not found("unused-rows", run(*step))


def test_gradients_of_weights_that_no_optimizer_has_are_unused_if_nothing_resets_them():
    teacher = [*gradient(WIDE), older(WIDE)] * 6
    assert unused(*teacher, *gradient(HEAD), update(HEAD, BIAS))
    assert not unused(*gradient(WIDE) * 6, *gradient(HEAD), update(HEAD, BIAS))
    assert not unused(*teacher, *gradient(HEAD), update(HEAD, BIAS, WIDE))
    student = [*gradient(WIDE), *gradient(HEAD), update(HEAD, BIAS, WIDE)]
    assert unused(*teacher, *student), "as many gradients as it updates come later"
    assert not unused(*gradient(WIDE), *teacher[:-1], *gradient(HEAD), older(WIDE), update(HEAD, BIAS, WIDE, WIDE))


def test_gradients_that_are_older_are_unused_though_the_list_of_the_optimizer_is_too_long_to_be_recorded():
    summed = op("aten::add_", call=ENGINE + "TBackward0", ns=2_000.0, phase="backward")
    twice = [*gradient(WIDE), *gradient(WIDE), summed | given(("float", *WIDE), ("float", *WIDE)), older(WIDE)] * 2
    assert unused(*twice, *gradient(HEAD), LONG)
    assert unused(*twice, *gradient(WIDE), *gradient(HEAD), LONG), "others of that shape come later"
    assert not unused(*gradient(WIDE), *twice, *gradient(HEAD), LONG), "one of that shape may be new"
    assert not unused(*twice, LONG), "none is reset"
    assert not unused(*twice, *gradient(HEAD), LONG, op("aten::zero_", ns=2_000.0, phase="optimizer"))
    assert not unused(*twice, FORWARD, *twice, *gradient(HEAD), LONG), "parts of a batch"


def test_a_pass_that_begins_at_an_earlier_layer_and_ends_without_a_gradient_of_the_input_disappears():
    layers = [(1024, 512), (512, 256), (256, 128)]
    goes_on = [each for shape in layers for each in gradient(shape)]
    summed = op("aten::add_", call=ENGINE + "TBackward0", ns=2_000.0, phase="backward")
    adds = [[summed | given(("float", *shape), ("float", *shape)), older(shape)] for shape in layers[1:]]
    relu = op("aten::threshold_backward", ns=5_000.0, phase="backward")
    ends = [*gradient(layers[1]), *adds[0], relu, gradient(layers[2])[1] | {"ns": 500.0}, *adds[1]]
    step = [relu, *goes_on, older(layers[0]), *ends, *gradient(HEAD), LONG]
    left = find("unused-gradients").transform(run(FORWARD, *step), "expected")
    assert Counter(left.name)["aten::threshold_backward"] == 1


FRAMES = ("float", 160, 3, 720, 1280)
CASTS = op("aten::copy_", op_lists.elementwise(160 * 3 * 720 * 1280, "fp32"), call="aten::to") | given(FRAMES, FRAMES)
RESIZED = ("float", 160, 3, 224, 224)
RESIZES = op("aten::upsample_bilinear2d", Cost(0, 1_769_000_000, 96_000_000, "reduction", "fp32")) | given(FRAMES)
SCALES = op("aten::div", op_lists.elementwise(160 * 3 * 224 * 224, "fp32")) | given(RESIZED, ("float", 1, 3, 1, 1))
SAMPLES = op("aten::index", ns=6_000.0) | given(RESIZED)
READS = op("aten::cat", call="aten::stack", ns=9_000.0) | {
    "inputs": ("[[[16,3,224,224],[16,3,224,224]],[]]", '["TensorList","Scalar"]')
}
CHAIN = [CASTS, RESIZES, SCALES]


def test_frames_that_no_index_picks_are_not_resized():
    base = run(*[*CHAIN, SAMPLES] * 2, READS)
    left = find("unused-rows").applied(base, "expected").ops
    assert left.kernel_ns[:8].sum() < 0.12 * base.ops.kernel_ns[:8].sum()


@pytest.mark.parametrize(
    "rows",
    [
        [*CHAIN, SAMPLES, SCALES | {"name": "aten::mul"}, READS],  # all are read, too
        [*CHAIN, op("aten::amax", ns=9_000.0) | given(RESIZED), SAMPLES, READS],  # their values decide
        [*CHAIN, op("aten::softmax", ns=9_000.0) | given(RESIZED), SAMPLES, READS],
        [*CHAIN, SAMPLES],  # nothing tells how many are picked
        [*CHAIN, *[SAMPLES] * 10, READS],  # parts of an epoch
    ],
)
def test_items_that_are_read_otherwise_are_used(rows):
    assert not found("unused-rows", run(*rows))
