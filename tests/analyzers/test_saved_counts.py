"""The number of tensors that autograd saves, as counted from an op list and as seen by autograd's hooks."""

import pytest

from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict import saved_counts
from tracekit.analyzers.predict.op_columns import op_list

torch = pytest.importorskip("torch")

X = torch.randn(2, 3, 4, 4, requires_grad=True)
WEIGHT, BIAS = (torch.randn(3, requires_grad=True) for _ in range(2))
CALLS = {
    "native_layer_norm": lambda: torch.layer_norm(X, (4,), WEIGHT.new_ones(4).requires_grad_(), X.new_ones(4)),
    "native_group_norm": lambda: torch.nn.functional.group_norm(X, 3, WEIGHT, BIAS),
    "native_dropout": lambda: torch.native_dropout(X, 0.5, True),
    "gelu": lambda: torch.nn.functional.gelu(X),
    "silu": lambda: torch.nn.functional.silu(X),
    "tanh": lambda: X.tanh(),
    "_softmax": lambda: X.softmax(-1),
    "rsqrt": lambda: X.rsqrt(),
    "pow": lambda: X.pow(2),
    "bmm": lambda: torch.bmm(X[0], X[1]),
    "addmm": lambda: torch.addmm(X[0, 0, 0], X[0, 0], X[0, 1]),
    "convolution": lambda: torch.conv2d(X, torch.randn(5, 3, 3, 3, requires_grad=True), None),
    "add": lambda: X + X,
    "sum": lambda: X.sum(-1),
    "cat": lambda: torch.cat([X, X]),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_op_saves_as_many_tensors_as_hooks_see(name):
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: seen.append(tensor), lambda packed: packed):
        CALLS[name]()
    assert counts([(name, Cost(0, 64, 64, "convolution" if name == "convolution" else "pointwise", "fp32"))]) == [
        len(seen)
    ]


def test_products_save_the_factors_whose_partner_has_a_gradient():
    two, smaller, number = (Cost(0, read, 64, "pointwise", "fp32") for read in (128, 80, 64))
    assert counts([("mul", two), ("mul", smaller), ("mul", number)]) == [2, 1, 0]


def counts(rows):
    ops = op_list(
        phase=["forward"] * len(rows),
        name=[f"aten::{name}" for name, _ in rows],
        layer=[f"layer.{at}" for at in range(len(rows))],
        cost=[cost for _, cost in rows],
    )
    return saved_counts(ops).to_list()
