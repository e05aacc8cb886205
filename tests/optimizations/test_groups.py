"""Loops over groups of rows or arrays, and calls of networks, that one call could do; and what only looks like them."""

import pytest
from test_matrices import small
from test_waste import ENGINE, copy, linear, op, run, trained

from tracekit.advise import find
from tracekit.advise.waste.items import calls_for_items
from tracekit.reports.words import sentences

GROUPS, WIDTH = 12, 64
LOOPS, ONE_CALL = find("loop-of-small-ops"), find("one-call-per-item")
JOINED = op("aten::cat", call="aten::stack", ns=2_000.0)


def found(waste, base):
    return waste.objection(base) is None


def group(rows, adds):
    """Return a round that picks the edges of one group, multiplies their rows, and adds them up."""
    nodes, edges, picked = ("float", 2000, WIDTH), ("long int", 30_000), ("float", rows, WIDTH)
    return [
        small("eq", edges, phase="forward"),
        small("nonzero", ("bool", 30_000), phase="forward"),
        small("index_select", nodes, writes=picked, phase="forward"),
        small("mm", picked, ("float", WIDTH, WIDTH), writes=picked, call="matmul", phase="forward"),
        small(adds, nodes, picked, writes=nodes, phase="forward"),
    ]


def grouped(adds="index_add"):
    back = [op(name, call=ENGINE + "MmBackward0", ns=1_000.0, phase="backward") for name in ("aten::mm", "aten::sum")]
    return trained(*[each for rows in range(GROUPS) for each in group(100 + 50 * rows, adds)], *back * GROUPS)


def test_groups_of_several_sizes_that_masks_pick_are_multiplied_and_added_at_once():
    after = LOOPS.transform(grouped(), "expected")
    assert (after.name == "aten::nonzero").sum() == (after.name == "aten::index_add").sum() == 1
    assert "picked by a mask" in sentences(LOOPS.reason(grouped()))
    assert "index_add" in LOOPS.how_to(grouped())


def test_groups_that_are_assigned_may_be_levels_which_need_each_other():
    assert not found(LOOPS, grouped("index_copy"))


def listed(sizes, *more, shared=False):
    """Return rounds of groups with lists of so many indices, and their gradients."""
    groups = {rows: (*group(rows, "index_add_")[2:], *more) for rows in sizes}
    rounds = [each for rows in sizes for each in groups[rows]]
    back = [op("aten::mm", call=ENGINE + "MmBackward0", ns=1_000.0, phase="backward")]
    back += [op("aten::add_", call=ENGINE + "MmBackward0", ns=1_000.0, phase="backward")] * shared
    return trained(*rounds, *back * len(sizes))


SIZES = [100 + 50 * rows for rows in range(GROUPS)]
RELU = small("clamp_min", ("float", 2000, WIDTH), writes=("float", 2000, WIDTH), phase="forward")
NEW_SUM = small("fill_", ("float", 2000, WIDTH), writes=("float", 2000, WIDTH), phase="forward")


def test_groups_of_lists_of_indices_with_a_matrix_each_are_multiplied_and_added_at_once():
    after = LOOPS.transform(listed(SIZES, RELU), "expected")
    assert (after.name == "aten::index_select").sum() == (after.name == "aten::index_add_").sum() == 1
    assert "gathered" in sentences(LOOPS.reason(listed(SIZES))) and "torch.cat" in LOOPS.how_to(listed(SIZES))


@pytest.mark.parametrize(
    "base",
    [listed(SIZES, shared=True), listed([500] * GROUPS), listed(SIZES, NEW_SUM)],
    ids=["levels that share a matrix", "layers on the same edges", "layers that begin a sum"],
)
def test_levels_and_layers_of_a_graph_need_each_other(base):
    assert not found(LOOPS, base)


def sent(sizes=(96,), behind=JOINED, count=64):
    arrays = [copy() | small("copy_", ("float", size), category="memcpy") for size in sizes]
    return run(*arrays * (count // len(sizes)), behind, linear())


def test_arrays_that_are_copied_one_by_one_and_stacked_on_the_device_are_one_copy():
    after = LOOPS.transform(sent(), "expected")
    assert after.name.tolist() == ["aten::copy_", "aten::cat", "aten::addmm"]
    assert "np.stack" in LOOPS.how_to(sent())


@pytest.mark.parametrize("base", [sent(sizes=(96, 80)), sent(behind=linear()), sent(count=8)])
def test_arrays_of_several_sizes_or_that_are_not_joined_or_few_are_no_loop(base):
    assert not found(LOOPS, base)


def passage(*more, blocks=110, length=512):
    """Return a call of an encoder that looks up a text, and runs through blocks of one size."""
    tokens, hidden = ("long int", length), ("float", length, 256)
    looked = small(
        "gather", ("float", 30_000, 256), tokens, writes=hidden, call="embedding", layer="Reranker_0.Embedding_0"
    )
    each = [
        [
            small("addmm", ("float", 256), hidden, ("float", 256, 256), writes=hidden, layer=f"Reranker_0.Block_{i}"),
            small("gelu", hidden, writes=hidden, layer=f"Reranker_0.Block_{i}"),
        ]
        for i in range(blocks)
    ]
    score = small("mm", hidden, ("float", 256, 1), writes=("float", 1), layer="Reranker_0.Linear_0")
    return [looked, *[one for block in each for one in block], score, *more]


def test_texts_that_one_network_scores_one_by_one_are_one_call():
    after = ONE_CALL.transform(run(*passage() * 8, JOINED), "expected")
    assert (after.call == "aten::embedding").sum() == 1 and (after.name == "aten::addmm").sum() == 110


@pytest.mark.parametrize(
    "more",
    [
        small("argmax", ("float", 512), writes=("long int", 512)),
        small("index_copy_", ("float", 1, 8), writes=("float", 1, 8)),
        small("add", ("float", 512, 256), writes=("float", 1024)),
    ],
    ids=["a choice", "a cache", "what the next one reads"],
)
def test_calls_that_leave_something_to_the_next_one_are_no_items(more):
    assert calls_for_items(run(*passage() * 8, JOINED))
    assert not calls_for_items(run(*passage(more) * 8, JOINED))


def texts(lengths, *more):
    """Return calls for texts of these lengths, which the host sends one by one."""
    sends = [copy() | small("copy_", ("long int", length), category="memcpy") for length in lengths]
    calls = [[send, *passage(*more, length=length)] for send, length in zip(sends, lengths, strict=True)]
    return run(*[each for call in calls for each in call], JOINED)


LENGTHS = (512, 300, 410, 128, 470, 333, 256, 201)
JOINS_KEYS = small("cat", ("float", 64, 256), writes=("float", 65, 256), layer="Reranker_0.Linear_0")


def test_texts_of_several_lengths_are_one_call():
    after = ONE_CALL.transform(texts(LENGTHS), "expected")
    assert (after.call == "aten::embedding").sum() == 1 and (after.name == "aten::addmm").sum() == 110


@pytest.mark.parametrize("base", [texts(sorted(LENGTHS)), texts(sorted(LENGTHS)[::-1]), texts(LENGTHS, JOINS_KEYS)])
def test_calls_that_grow_or_shrink_or_append_may_need_each_other(base):
    assert not calls_for_items(base)


def member(reads, writes):
    """Return a network with a loss, which is added to those of the networks before."""
    inner, loss = ("float", 256, 400), ("float", 1)
    first, last = (("float", 400), reads, ("float", 60, 400)), (("float", 48), inner, ("float", 400, 48))
    network = [
        small("addmm", *first, writes=inner, call="linear", phase="forward", layer="Member"),
        small("silu", inner, writes=inner, phase="forward", layer="Member"),
        small("addmm", *last, writes=writes, call="linear", phase="forward", layer="Member"),
    ]
    compared = small("mse_loss", writes, writes, writes=loss, phase="forward")
    return [*network, compared, small("add", loss, loss, writes=loss, phase="forward")]


def losses(reads, writes=("float", 256, 48)):
    one = member(reads, writes)
    each = [row | {"layer": row["layer"] and f"Member_{number}"} for number in range(10) for row in one]
    back = op("aten::mm", call=ENGINE + "AddmmBackward0", ns=1_000.0, phase="backward")
    return trained(*each, *[back] * 20)


def test_networks_of_which_each_has_a_loss_are_trained_as_one():
    after = ONE_CALL.transform(losses(("float", 256, 60)), "expected")
    assert (after.name == "aten::silu").sum() == (after.name == "aten::mse_loss").sum() == 1


def test_blocks_of_one_network_with_a_loss_each_read_what_the_one_before_wrote():
    assert not found(ONE_CALL, losses(("float", 256, 60), ("float", 256, 60)))
