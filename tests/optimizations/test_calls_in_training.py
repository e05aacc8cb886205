"""Calls of one network, or of several, in training that one call could do, and what only looks like them."""

import op_lists
import pytest
from op_lists import elementwise
from test_waste import ENGINE, WHOLE, cast, linear, op, run, trained
from test_work_again import given

from tracekit.advise import find
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.cost.ops.work import ConvolutionGradients

FRAMES, SMALL = 8, {"ns": 2_000.0}
CONVOLVES = op("aten::cudnn_convolution", call="aten::conv2d", phase="forward", **SMALL)
RELU = op("aten::clamp_min", call="aten::relu", phase="forward", **SMALL)
WEIGHT = op("aten::copy_", call="aten::conv2d", phase="forward", **SMALL)


def found(base):
    return find("one-call-per-item").objection(base) is None


def gradient(of_input, positions=4096):
    """Return the gradients of a convolution: of its weights, and perhaps of its input."""
    work = ConvolutionGradients(positions, 4096, 1 << 16, 1 << 16, 1, 9, 2, of_input, True, False)
    cost = Cost(1 << 24, 1 << 18, 1 << 16, "convolution", "bf16", work=work)
    return op("aten::convolution_backward", cost, call=ENGINE + "ConvolutionBackward0", phase="backward", **SMALL)


def clips(*, of_input=False, first=()):
    """Return a step that encodes the frames of a clip one by one by two convolutions, and trains these."""
    frame = [CONVOLVES, RELU, CONVOLVES, RELU, RELU]
    calls = [*(first or frame), *frame * (FRAMES - 1), linear(4096, ns=9_000.0, phase="forward")]
    back = [gradient(True), gradient(of_input)] * FRAMES
    added = op("aten::add_", call=ENGINE + "ConvolutionBackward0", phase="backward", **SMALL)
    return trained(*calls, *back, *[added] * (2 * FRAMES - 2))


def test_frames_that_are_encoded_one_by_one_in_training_are_one_call():
    after = find("one-call-per-item").transform(clips(), "expected")
    assert (after.name == "aten::cudnn_convolution").sum() == 2
    assert (after.name == "aten::convolution_backward").sum() == 2


def test_convolutions_of_what_the_call_before_computed_are_no_frames():
    assert not found(clips(of_input=True))


def test_the_first_call_under_autocast_which_casts_the_weights_is_one_of_them():
    casts = [WEIGHT, CONVOLVES, RELU, WEIGHT, CONVOLVES, RELU, RELU]
    after = find("one-call-per-item").transform(clips(first=casts), "expected")
    assert (after.name == "aten::cudnn_convolution").sum() == 2
    assert (after.name == "aten::copy_").sum() == 2


def test_a_kernel_for_all_items_takes_the_time_of_their_work():
    small, large = (find("one-call-per-item").transform(clips(), each) for each in ("best", "worst"))
    times = [each.kernel_ns[each.name == "aten::convolution_backward"].sum() for each in (small, large)]
    assert 2 * SMALL["ns"] < times[0] <= times[1] <= 2 * FRAMES * SMALL["ns"]


def member(width=256):
    """Return one of several networks, of whose layers the first has as many outputs as the batch has rows."""
    first = op("aten::addmm", op_lists.product(256, width, 53, "fp32"), call="aten::linear", phase="forward", **SMALL)
    last = op("aten::addmm", op_lists.product(256, 1, width, "fp32"), call="aten::linear", phase="forward", **SMALL)
    relu = op("aten::relu", elementwise(256 * width, "fp32"), phase="forward", **SMALL)
    reads = given(("float", width), ("float", 256, 53), ("float", 53, width))
    return [first | reads, relu | given(("float", 256, width)), last | given(("float", 1), ("float", 256, width))]


CRITIC, STACKED = member(), op("aten::stack", phase="forward", **SMALL)
OTHER = op("aten::mul", phase="forward", **SMALL)


def critics(updates=1, layer=""):
    back = [op("aten::mm", call=ENGINE + "AddmmBackward0", phase="backward", layer=layer, **SMALL)] * 20
    steps = op("aten::_foreach_add_", phase="optimizer", **SMALL)
    ensemble = [each | {"layer": "Critic_0"} for each in CRITIC] * 10
    return run(*[OTHER, *ensemble, STACKED, OTHER, *back, steps] * updates)


def test_a_bias_as_large_as_the_result_is_no_result_of_the_network_before():
    assert found(critics())


@pytest.mark.parametrize("updates", [1, 4])
def test_networks_on_one_input_are_one_in_each_update_of_a_step_and_their_optimizer_visits_one(updates):
    base = critics(updates)
    after = find("one-call-per-item").transform(base, "expected")
    assert (after.name == "aten::addmm").sum() == 2 * updates
    assert (after.name == "aten::mm").sum() == 2 * updates
    host = after.host_ns[after.name == "aten::_foreach_add_"]
    assert host == pytest.approx(base.ops.host_ns[base.ops.name == "aten::_foreach_add_"] / 10)


def test_the_backward_pass_of_other_layers_stays():
    after = find("one-call-per-item").transform(critics(layer="Encoder_0.Linear_0"), "expected")
    assert (after.name == "aten::mm").sum() == 20


def test_casts_around_a_product_in_16_bits_are_those_of_autocast():
    product, narrow = op("aten::cudnn_convolution", ns=9_000.0), (cast(1 << 20, 4, 2), cast(1 << 20, 2, 4))
    assert find("casts-back").objection(run(narrow[0], product, narrow[1]))
    assert find("casts-back").objection(run(narrow[0], op("aten::mul", WHOLE), narrow[1])) is None


def test_numbers_that_a_norm_of_gradients_begins_with_are_no_constants_of_the_program():
    begin = op("aten::fill_", elementwise(1 << 20, "fp32"), call="aten::_foreach_norm") | given(("float", 1 << 20))
    base = trained(linear(phase="forward"), op("aten::mm", call=ENGINE + "MmBackward0", phase="backward"), begin)
    assert find("computed-again").objection(base)


def cameras(blocks=12):
    """Return a step that encodes each camera by one network of equal blocks, of which the first call casts
    the weights, and trains it."""
    product, first = linear(64, ns=2_000.0, phase="forward"), CONVOLVES | {"layer": "Eye.Conv2d"}
    block = [[each | {"layer": f"Eye.Block_{i}"} for each in (WEIGHT, product, RELU)] for i in range(blocks)]
    casting, usual = [each for one in block for each in one], [each for one in block for each in one[1:]]
    back = [gradient(False) | {"layer": "Eye.Conv2d"}] * 6
    added = op("aten::add_", call=ENGINE + "TBackward0", phase="backward", **SMALL)
    decoder = linear(4096, ns=9_000.0, phase="forward")
    return trained(first, *casting, *[first, *usual] * 5, decoder, *back, *[added] * 60)


def test_the_equal_blocks_of_a_shared_network_are_no_calls_of_it():
    after = find("one-call-per-item").transform(cameras(), "expected")
    assert (after.name == "aten::cudnn_convolution").sum() == 1
    assert (after.name == "aten::addmm").sum() == 12 + 2
