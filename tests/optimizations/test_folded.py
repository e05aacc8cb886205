"""Linear layers of inference that are one, and what only looks like them."""

from test_waste import op, run, trained
from test_work_again import found, given

from tracekit.advise import find

KIND = "folded-layers"


def layer(name="aten::cudnn_convolution", call="aten::conv2d", ns=300_000.0):
    return op(name, call=call, ns=ns)


def norm(**more):
    return op("aten::native_batch_norm", call="aten::batch_norm", ns=100_000.0) | more


ADD, RELU, BIAS = op("aten::add", ns=70_000.0), op("aten::relu", ns=50_000.0), op("aten::add_", call="aten::conv2d")
POINT, READY = layer(ns=90_000.0), op("aten::copy_", call="aten::batch_norm", ns=1_000.0)
BRANCHES = [layer(), READY, norm(), POINT, READY, norm(), ADD]
IDENTITY = [*BRANCHES, READY, norm(), ADD, RELU]
RESIDUAL = [layer(), norm(), RELU, layer(), norm(), ADD, RELU]
PROJECTED = [layer(), norm(), RELU, layer(), norm(), POINT, norm(), ADD, RELU]


def left(*rows):
    return find(KIND).transform(run(*rows), "expected").name.tolist()


def test_branches_that_are_added_up_are_the_longest_layer_with_a_bias():
    merged = ["aten::cudnn_convolution", "aten::native_batch_norm", "aten::relu"]
    assert left(*IDENTITY * 4) == merged * 4
    assert left(*IDENTITY * 3, *BRANCHES, RELU) == merged * 4


def test_norms_behind_a_bias_disappear():
    assert left(layer(), BIAS, norm(), RELU) == ["aten::cudnn_convolution", "aten::add_", "aten::relu"]
    assert left(layer("aten::addmm", "aten::linear"), norm(), RELU) == ["aten::addmm", "aten::relu"]
    assert not found(KIND, run(layer(), norm(), RELU))  # the bias takes as long as the norm


def test_residuals_activations_and_training_are_told_from_branches():
    assert not found(KIND, run(*PROJECTED, *RESIDUAL * 3))
    assert not found(KIND, run(*PROJECTED * 4))  # no norm of an identity, and no shapes
    assert not found(KIND, run(*[layer(), norm(), RELU, POINT, norm(), RELU, ADD] * 4))
    assert not found(KIND, trained(*IDENTITY * 4))
    counted = [op("aten::add_", call="aten::add_", ns=1_000.0), norm()]
    assert not found(KIND, run(*[row for each in IDENTITY * 4 for row in (counted if each == norm() else [each])]))


def test_sums_of_layers_alone_are_of_two_tensors():
    state = layer("aten::addmm", "aten::linear") | given(("float", 64, 512))
    assert not found(KIND, run(*[state, state, ADD, RELU] * 4))


def test_by_shapes_branches_read_one_tensor():
    def block(first, other):
        x, y = given(("float", 8, 64, first, first)), given(("float", 8, 64, other, other))
        return [layer() | x, norm() | x, POINT | y, norm() | x, ADD, RELU]

    assert found(KIND, run(*block(56, 56) * 4)) and not found(KIND, run(*block(28, 56) * 4))
