"""Repeated blocks of a forward pass, derived from the names of layers or from repetition."""

import pandas as pd

from tracekit.analyzers.cost import Cost, Product
from tracekit.analyzers.predict.batch_size import repeated_blocks
from tracekit.analyzers.predict.op_columns import op_list

COLUMNS = ["phase", "layer", "name", "cost"]


def cost(work=None, written=64):
    return Cost(0, written, written, "gemm" if work else "pointwise", "fp32", work=work)


def product(n):
    return cost(Product(1, 8, n, 16, weight=True))


BLOCK = [("layer_norm", cost()), ("mm", product(48)), ("gelu", cost()), ("mm", product(16)), ("add", cost())]


def step(times, layers=False):
    """Return an embedding and a norm, `times` blocks, a norm and a head; then one backward op."""
    before, after = [("embedding", cost()), ("layer_norm", cost())], [("layer_norm", cost()), ("mm", product(99))]
    blocks = [(f"model.h.{at}.mlp", *op) for at in range(times) for op in BLOCK]
    rows = [*[("model.other", *op) for op in before], *blocks, *[("lm_head", *op) for op in after]]
    forward = [("forward", layer if layers else "", name, each) for layer, name, each in rows]
    rows = [*forward, ("backward", "", "mm", product(48))]
    return op_list(**dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)))


def test_numbered_layers_are_blocks():
    blocks = repeated_blocks(step(4, layers=True))
    assert blocks.value_counts().to_dict() == {f"model.h.{at}": len(BLOCK) for at in range(4)}


def test_what_repeats_is_the_same_blocks_where_no_layer_is_named():
    named, told = repeated_blocks(step(4, layers=True)), repeated_blocks(step(4))
    assert list(told.index) == list(named.index)
    assert list(pd.factorize(told)[0]) == list(pd.factorize(named)[0])


def test_two_of_a_kind_are_no_blocks():
    assert repeated_blocks(step(2)).empty


def test_inference_has_none():
    assert repeated_blocks(step(4)[:-1]).empty
