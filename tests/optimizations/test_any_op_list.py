"""Whatever ops a step holds, each optimization is judged; one that fails costs its own advice alone, and says so."""

import json

import op_lists
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_waste import ENGINE, LOOP, linear, op, run

from tracekit.advise import find
from tracekit.advise.predicted import advise
from tracekit.advise.recommending import _bugs
from tracekit.advise.waste.catalogue import WASTE
from tracekit.analyzers.cost import Cost

NAMES = """abs add add_ addmm any argmax argmin argsort bernoulli_ bincount bmm cat clamp coalesce contiguous conv2d
convolution convolution_backward copy_ cudnn_batch_norm cumsum diff digamma div embedding embedding_bag
embedding_dense_backward equal exp expand fill_ flatten gather gelu index index_add_ index_put_ index_select isnan
linalg_cholesky_ex linalg_eigvals linalg_lu_factor_ex linalg_qr linalg_svd linear matmul max mean mm mul multinomial
native_batch_norm native_dropout native_layer_norm ne new_zeros nonzero ones pow quantile rand randn randperm relu roll
scatter_add_ slice_scatter softmax sort sub sum sum_to_size tanh topk tril triu unfold unique_dim upsample_bilinear2d
where zero_ zeros _cdist_forward _cudnn_rnn _efficient_attention_forward _embedding_bag _foreach_add_ _foreach_zero_
_fft_r2c _fused_adam_ _local_scalar_dense _softmax _sparse_mm _to_copy _unique2 _weight_norm_interface"""
NODES = ("Add", "Mm", "Embedding", "Sort", "Max", "Convolution", "CudnnBatchNorm", "Tanh", "LinalgQr")
FAMILIES = ("gemm", "attention", "norm", "softmax", "embedding", "pointwise", "reduction", "copy", "gather", "sort")
SIDES = st.sampled_from([0, 1, 1, 2, 3, 8, 64, 512, 100_000])
SHAPES = st.lists(SIDES, max_size=4)
KINDS = st.sampled_from(["float", "double", "long int", "bool", "c10::BFloat16", "TensorList", "Scalar", ""])
BYTES = st.sampled_from([0, 4, 4096, 1 << 20, 1 << 26])
COSTS = st.one_of(
    st.none(),
    st.builds(op_lists.product, *[st.sampled_from([1, 8, 512, 4096])] * 3, st.just("fp32")),
    st.builds(Cost, st.just(1e6), BYTES, BYTES, st.sampled_from(FAMILIES), st.sampled_from(["fp32", "fp64", "bf16"])),
)


@st.composite
def ops(draw, names, phases):
    name, phase = "aten::" + draw(names), draw(phases)
    call = ENGINE + draw(st.sampled_from(NODES)) + "Backward0" if phase == "backward" else name
    inputs = draw(st.lists(st.tuples(SHAPES, KINDS), max_size=3))
    recorded = draw(st.sampled_from([{}, {"again": True}, {"differentiable": True}, {"takes": True}, {"node": 3}]))
    written = (json.dumps([shape for shape, _ in inputs]), json.dumps([kind for _, kind in inputs]))
    ns = draw(st.sampled_from([1.0, 3_000.0, 90_000.0, 5e6]))
    row = {"name": name, "call": call, "cost": draw(COSTS), "ns": ns, "phase": phase, "layer": "", "category": "kernel"}
    return row | recorded | {"inputs": draw(st.sampled_from([None, written]))}


@st.composite
def lists(draw):
    """Return rows of a few ops in a few names, some of which come again and again; some runs record no shapes."""
    names = st.sampled_from(draw(st.lists(st.sampled_from(NAMES.split()), min_size=1, max_size=6)))
    phases = st.sampled_from(draw(st.sampled_from([("",), ("", "forward"), ("forward", "backward", "")])))
    before, round_, after = (draw(st.lists(ops(names, phases), max_size=most)) for most in (5, 5, 3))
    rows = [*before, *round_ * draw(st.sampled_from([1, 2, 5, 17])), *after] or [linear()]
    return rows if draw(st.booleans()) else [row | {"cost": None, "inputs": None} for row in rows]


CHOSEN = op("aten::multinomial", ns=90_000.0)
"""Rows that a step chooses before its first linear layer."""
NOTHING_READ = [
    linear() | {"inputs": ("[[512, 1024], [1024, 4096]]", '["float", "float"]')},
    op("aten::add", ns=1.0) | {"inputs": ("[[0, 4096]]", '["float"]')},
]


@example([*[CHOSEN] * 5, *[op("aten::addmm", call="aten::linear", ns=1.0)] * 5], "worst")
@example(NOTHING_READ, "worst")
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(lists(), st.sampled_from(("worst", "expected", "best")))
def test_each_kind_of_waste_is_sought_and_left_out_whatever_the_ops_are(rows, outcome):
    base = run(*rows)
    for kind in WASTE:
        if kind.objection(base) is None:
            assert kind.applied(base, outcome).latency_ns >= 0
            assert kind.reason(base) and kind.terms(base) and kind.evidence(base) is not None


def test_one_that_fails_costs_its_own_advice_alone_and_is_a_problem(monkeypatch):
    monkeypatch.setattr(find("computed-again"), "_detect", lambda _: [][-1])
    advice = advise(run(*LOOP * 20))
    assert advice.recommendations[0].id == "loop-of-small-ops"
    option = next(each for each in advice.considered if each.id == "computed-again")
    assert option.objection.startswith("It could not be judged (IndexError in <lambda>, line ")
    assert _bugs(advice)[0].row()[:3] == ("advice-failed", "error", 1)
