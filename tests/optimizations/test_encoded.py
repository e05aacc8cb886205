"""Networks that encode in each step what lies on the device, and those that only look like it."""

from itertools import pairwise

import op_lists
import pytest
from msgspec.structs import replace
from op_lists import elementwise
from test_waste import ENGINE, op, run
from test_work_again import again, given

from tracekit.advise import find
from tracekit.analyzers.cost import Cost

ITEMS, SIDES, WIDTH = 128, (3, 64, 64), 512
BATCH, TABLE = ("float", ITEMS, *SIDES), ("float", 4096, *SIDES)
BYTES = 4 * ITEMS * 3 * 64 * 64
TAKEN = op("aten::index", ns=9_000.0) | given(TABLE)
SENT = op("aten::copy_", Cost(0, BYTES, BYTES, "copy", "fp32"), category="memcpy") | given(BATCH, BATCH)
SENT |= {"copies": "Memcpy HtoD (Pinned -> Device)", "copied": float(BYTES)}
NOISE = op("aten::normal_", Cost(0, 0, BYTES, "copy", "fp32"), call="aten::randn_like") | given(BATCH)
COINS, FLIPPED = ("float", ITEMS, 1), ("bool", ITEMS, 1, 1, 1)
DRAWN = op("aten::uniform_", Cost(0, 0, 4 * ITEMS, "copy", "fp32"), call="aten::rand") | given(COINS)
TOSSED = op("aten::lt", Cost(0, 4 * ITEMS, ITEMS, "pointwise", "fp32")) | given(COINS)
FLIPS = op("aten::where", Cost(0, 2 * BYTES, BYTES, "pointwise", "fp32")) | given(FLIPPED, BATCH, BATCH)
ADDS = op("aten::add", Cost(0, 2 * BYTES, BYTES, "pointwise", "fp32")) | given(BATCH, BATCH)


def makes_linear(rows, inner, outer, **more):
    cost = op_lists.product(rows, outer, inner, "fp32")
    weights = given(("float", outer), ("float", rows, inner), ("float", inner, outer))
    return op("aten::addmm", cost, call="aten::linear", ns=900_000.0, phase="forward", **more) | weights


def network(width, rows=ITEMS, inner=3 * 64 * 64, layers=6):
    sides = [inner, *[width] * layers]
    return [makes_linear(rows, *each) for each in pairwise(sides)]


def graphed(layers):
    """Return these layers, each of which makes a node of autograd's graph."""
    return [layer | {"begun": number} for number, layer in enumerate(layers)]


FROZEN = network(WIDTH)
WITHOUT_NODES = [layer | {"begun": 0} for layer in FROZEN]
WITHOUT_NODES[-1]["call"] = "aten::addmm"
HEAD = graphed([makes_linear(ITEMS, WIDTH, 64), makes_linear(ITEMS, 64, 10)])
UPDATE = op("aten::_fused_adam_", ns=9_000.0, phase="optimizer")


def learns(*layers):
    """Return the gradients of the weights of these layers, in reverse order, and their update."""
    works = [layer["cost"].work for layer in reversed(layers)]
    costs = [op_lists.product(work.k, work.n, ITEMS, "fp32") for work in works]
    costs = [replace(cost, work=replace(cost.work, weight="", gradient=True)) for cost in costs]
    return [*(op("aten::mm", cost, call=ENGINE + "AddmmBackward0", phase="backward") for cost in costs), UPDATE]


LEARNS = learns(*HEAD)
STUDENT = graphed(network(96))
TRAINED = graphed(network(WIDTH))
ADAPTER = [makes_linear(ITEMS, WIDTH, 8), makes_linear(ITEMS, 8, WIDTH)]
ADAPTED = [each for layer in FROZEN[1:] for each in (layer, *ADAPTER)]
HALF = network(WIDTH, rows=ITEMS // 2)
PART = [HALF[0] | {"takes": True}, *HALF[1:]]
WHOLE = op("aten::copy_", Cost(0, 3 * BYTES, 3 * BYTES, "copy", "fp32"), category="memcpy") | given(
    ("float", 3 * ITEMS, *SIDES)
)
WHOLE |= {"call": "aten::to", "copies": "Memcpy HtoD (Pinned -> Device)", "copied": 3.0 * BYTES}
DECODER = graphed(network(96, inner=WIDTH, layers=8))
ITEM = ("float", 5, *SIDES)
WRITTEN = op("aten::copy_", elementwise(5 * 3 * 64 * 64, "fp32"), call="aten::copy_") | given(ITEM, ITEM)


@pytest.mark.parametrize(
    "step",
    [
        [TAKEN, *FROZEN, *HEAD, *LEARNS],  # items that come again in each epoch
        [TAKEN, *WITHOUT_NODES, *HEAD, *LEARNS],  # by weights without gradients
        [TAKEN, *STUDENT, *FROZEN, *learns(*STUDENT)],  # of a teacher, after the student
        [SENT, *STUDENT, *network(WIDTH, rows=60, inner=700), *learns(*STUDENT)],  # of prompts that lie on the device
    ],
)
def test_a_frozen_network_encodes_what_lies_on_the_device_once(step):
    base = run(*step)
    assert again(base)
    assert len(find("computed-again").transform(base, "expected")) == len(step) - len(FROZEN)


@pytest.mark.parametrize(
    "step",
    [
        [SENT, *FROZEN, *HEAD, *LEARNS],  # of what the host sends
        [TAKEN, NOISE, ADDS, *FROZEN, *HEAD, *LEARNS],  # of items that are augmented
        [TAKEN, DRAWN, TOSSED, FLIPS, *FROZEN, *HEAD, *LEARNS],  # each or not
        [TAKEN, *TRAINED, *HEAD, *learns(*HEAD)],  # of gradients that go on
        [TAKEN, *FROZEN, *TRAINED, *learns(*TRAINED)],  # by a mean of the network that is trained
        [TAKEN, *FROZEN, *TRAINED, *DECODER, *learns(*TRAINED, *DECODER)],  # by an older encoder of it
        [TAKEN, FROZEN[0], *ADAPTED, *HEAD, *learns(*ADAPTER * 5, *HEAD)],  # with adapters that are trained, and a head
        [TAKEN, FROZEN[0], *ADAPTED, *STUDENT, *learns(*ADAPTER * 5)],  # with adapters that are trained
        [WRITTEN, TAKEN, *FROZEN, *HEAD, *LEARNS],  # of items that a simulation brings
        [WHOLE, TAKEN | {"takes": True}, *FROZEN, *HEAD, *LEARNS],  # of rows of a part of a batch
        [TAKEN | given(("float", 1 << 28, *SIDES)), *FROZEN, *HEAD, *LEARNS],  # of more than the memory keeps
        [SENT, *STUDENT, *PART, *learns(*STUDENT)],  # of a part of a batch
        [*FROZEN, *HEAD, *LEARNS],  # of the one batch of a benchmark, to which nothing new comes
    ],
)
def test_what_a_network_encodes_anew_is_work(step):
    assert not again(run(*step))


GRAPHS, NODES = 512, 64
ADJACENCIES, ADJACENCY = ("float", GRAPHS, NODES, NODES), ("float", 32, NODES, NODES)
LINKS = 32 * NODES * NODES
PICKED = op("aten::index", ns=9_000.0) | given(ADJACENCIES)
LAPLACIAN = op("aten::sub", elementwise(LINKS, "fp32")) | given(ADJACENCY, ADJACENCY)
EIGEN = op("aten::_linalg_eigh", call="aten::linalg_eigh", ns=9_000_000.0) | given(ADJACENCY)
CHECKED = op("aten::_local_scalar_dense", call="aten::linalg_eigh", category="memcpy", ns=900.0)
NETWORK = graphed([makes_linear(2048, 12, 256), makes_linear(2048, 256, 10)])
FITS = learns(*NETWORK)
DROPPED = op("aten::bernoulli_", Cost(0, 0, 4 * LINKS, "copy", "fp32"), call="aten::bernoulli") | given(ADJACENCY)
MOMENT = ("float", 256, 256)
AVERAGED = op("aten::lerp_", elementwise(256 * 256, "fp32")) | given(MOMENT, MOMENT)
STORED = op("aten::copy_", elementwise(NODES * NODES, "fp32"), call="aten::copy_") | given(("float", NODES, NODES))


def test_functions_of_matrices_of_a_table_are_computed_once_for_all_batches():
    base = run(PICKED, LAPLACIAN, EIGEN, CHECKED, *NETWORK, *FITS)
    assert again(base)
    assert "self.encoding[index]" in find("computed-again").how_to(base)
    left = find("computed-again").transform(base, "expected").name.tolist()
    assert left == [each["name"] for each in (PICKED, *NETWORK, *FITS)]


@pytest.mark.parametrize(
    "step",
    [
        [PICKED, DROPPED, LAPLACIAN, EIGEN, CHECKED, *NETWORK, *FITS],  # of graphs with other edges each time
        [STORED, PICKED, LAPLACIAN, EIGEN, CHECKED, *NETWORK, *FITS],  # of graphs that the step changes
        [PICKED, *graphed([LAPLACIAN, EIGEN, CHECKED]), *NETWORK, *FITS],  # of what is trained
        [PICKED, EIGEN | given(MOMENT), CHECKED, *NETWORK, *FITS, AVERAGED],  # of a preconditioner
    ],
)
def test_functions_of_matrices_that_change_are_work(step):
    assert not again(run(*step))


def test_the_cast_of_a_weight_for_a_product_is_no_data_even_if_a_gradient_has_its_size():
    bias = Cost(0, 4 * WIDTH, 2 * WIDTH, "copy", "fp32")
    cast = op("aten::copy_", bias, call="aten::linear") | given(("c10::BFloat16", WIDTH), ("float", WIDTH))
    gradient = op("aten::sum", elementwise(WIDTH, "fp32"), call=ENGINE + "AddmmBackward0", phase="backward")
    layers = [each for layer in FROZEN for each in (cast, layer)]
    step = run(TAKEN, *layers, *HEAD, gradient, *LEARNS)
    assert len(find("computed-again").transform(step, "expected")) == 1 + len([*HEAD, gradient, *LEARNS])


TOWER, PROMPTS = network(768), network(WIDTH, rows=1320, inner=800)
SCORES = op("aten::mm", op_lists.product(ITEMS, 1320, 768, "fp32"), call="aten::matmul") | given(
    ("float", ITEMS, 768), ("float", 768, 1320)
)
STATE = op("aten::tanh", elementwise(1320 * 800, "fp32")) | given(("float", 1320, 800))


def test_inference_encodes_prompts_once_for_all_images():
    step = [SENT, *TOWER, *PROMPTS, SCORES]
    assert find("computed-again").transform(run(*step), "expected").name.tolist() == [
        each["name"] for each in (SENT, *TOWER, SCORES)
    ]


HALVES = given(("c10::Half", WIDTH), ("c10::Half", 1320, 800), ("c10::Half", 800, WIDTH))
TEXTS = [PROMPTS[0] | HALVES | {"takes": True}, *PROMPTS[1:]]


@pytest.mark.parametrize(
    "step",
    [
        [SENT, *TOWER, *TEXTS, SCORES],  # of a part of all texts in turn
        [SENT, *TOWER, *PROMPTS, SCORES, STATE],  # of a state that the step leaves to the next one
        [*TOWER, *PROMPTS, SCORES],  # of inputs of which none is new
        [SENT, *PROMPTS],  # with no other network
        [SENT, *TOWER, *network(WIDTH, inner=800), SCORES],  # of as many items as the host sends
        [SENT, *TOWER, *network(WIDTH, rows=ITEMS, inner=768), SCORES],  # of what another network made
    ],
)
def test_inference_of_inputs_that_may_be_new_is_work(step):
    assert not again(run(*step))


PLACES = ("float", 1, WIDTH)
ADDED = op("aten::add", elementwise(ITEMS * WIDTH, "fp32")) | given(("float", ITEMS, WIDTH), PLACES)
ENCODER = [each | {"layer": "Encoder_0", "phase": ""} for each in [FROZEN[0], ADDED, *FROZEN[1:]]]
TIME = op("aten::fill_", Cost(0, 0, 4 * ITEMS, "copy", "fp32"), call="aten::full") | given(("float", ITEMS))
DENOISER = [TIME, *(each | {"layer": "Denoiser_0", "phase": ""} for each in network(64, inner=WIDTH, layers=2))]
INNER = [each | {"layer": f"Model_0.{each['layer'] or 'Time_0'}"} for each in [*ENCODER, *DENOISER]]
STEPS = [*ENCODER, *DENOISER]


@pytest.mark.parametrize("rounds", [STEPS * 5, INNER * 5])
def test_a_sampler_encodes_once_what_all_its_steps_attend_to(rounds):
    left = find("computed-again").transform(run(SENT, *rounds), "expected")
    assert sum(layer.endswith("Encoder_0") for layer in left.layer) == len(ENCODER)
    assert len(left) == 1 + len(ENCODER) + 5 * len(DENOISER)


COUNTS = op("aten::arange", Cost(0, 0, 8 * WIDTH, "copy", "fp32"), layer="Encoder_0") | given(("long int", 0))


def counting(*firsts):
    """Return a run in which each call of the encoder counts places from a number, if it is recorded."""
    numbers = [("[[],[],[],[0]]", f'["{first}","512","1",""]') if first is not None else None for first in firsts]
    return run(SENT, *[each for pair in numbers for each in (COUNTS | {"numbers": pair}, *STEPS)])


def test_an_encoder_that_runs_again_for_each_token_counts_the_same_places():
    left = find("computed-again").transform(counting(*[0] * 5), "expected")
    assert (left.name == "aten::arange").sum() == 1 and len(left) == 2 + len(ENCODER) + 5 * len(DENOISER)
    assert not again(counting(*range(0, 2560, 512))), "one part of the places after another"
    assert not again(counting(*[None] * 5))


def of(number):
    return [each | {"layer": f"Encoder_{number}"} for each in ENCODER]


STARTED, STATES = (NOISE | given(("float", ITEMS, WIDTH)), network(WIDTH, inner=WIDTH))
STARTED |= {"cost": Cost(0, 0, 4 * ITEMS * WIDTH, "copy", "fp32")}
CELL = [each | {"layer": "Encoder_0", "phase": ""} for each in STATES]


@pytest.mark.parametrize(
    "step",
    [
        [SENT, *[each for number in range(5) for each in (*of(number), *DENOISER)]],  # by networks of an ensemble
        [STARTED, *[*CELL, *DENOISER] * 5],  # of what the network wrote, as a recurrent one does
        [*[SENT, *STEPS] * 5],  # of what each round gets
        [SENT, *[ADDS, *STEPS] * 5],  # of what each round makes
        [SENT, *[TAKEN, *STEPS] * 5],  # of items that each round takes
        [*[SENT] * 5, *STEPS * 5],  # of inputs that came before, one after another
        [*STEPS * 5],  # of what may be a list of inputs
        [SENT, *[ENCODER[0] | {"takes": True}, *ENCODER[1:], *DENOISER] * 5],  # of parts of a batch
        [SENT, *[*ENCODER[:2], TIME | {"layer": "Encoder_0"}, *ENCODER[2:], *DENOISER] * 5],  # at a time
        [SENT, *[*ENCODER, op("aten::relu", ns=9_000.0)] * 5],  # with no other network
    ],
)
def test_a_network_that_rounds_call_for_other_inputs_is_work(step):
    assert not again(run(*step))
