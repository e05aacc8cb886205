"""Parsing a call from the text of a trace: values, types, malformed input, and the registry."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_calls import CPP_NAMES, SCALAR_TYPES

from tracekit.analyzers.cost import MalformedCall, cost_of_signature, parse_call, tensors
from tracekit.analyzers.cost.ops.registry import FORMULAS, DuplicateFormulaError, costs


def test_values_become_python_values() -> None:
    texts = [
        "1",
        "[-1, 512]",
        "True",
        "0.125",
        "0.",
        "",
        "-3.4028234663852886e+38",
        "[]",
        "[True, False]",
        "tanh",
        "inf",
    ]
    call = parse_call("aten::x", json.dumps([[]] * 11), json.dumps([""] * 11), json.dumps(texts))
    expected = (1, (-1, 512), True, 0.125, 0.0, None, -3.4028234663852886e38, (), (True, False), "tanh", float("inf"))
    assert call.values == expected
    assert [type(value) for value in call.values] == [type(value) for value in expected]


def test_shapes_nest_for_lists_of_tensors() -> None:
    call = parse_call("aten::cat", "[[[1,2],[3,4]],[]]", '["TensorList","Scalar"]', '["","0"]')
    assert call.shapes == (((1, 2), (3, 4)), ())


@pytest.mark.parametrize("dtype", CPP_NAMES)
def test_sizes_of_all_spellings(dtype: torch.dtype) -> None:
    short = str(dtype).removeprefix("torch.")
    for spelling in (CPP_NAMES[dtype], str(dtype), short, short.capitalize()):
        entry = tensors.find(spelling)
        assert entry is not None, spelling
        assert (entry.name, entry.bytes) == (short, dtype.itemsize)


def test_scalar_type_numbers() -> None:
    for dtype, number in SCALAR_TYPES.items():
        entry = tensors.from_scalar_type(number)
        assert entry is not None
        assert f"torch.{entry.name}" == str(dtype)
    assert tensors.from_scalar_type(99) is None


def test_unknown_names_are_no_types() -> None:
    assert [tensors.find(name) for name in ("", "Scalar", "TensorList", "ScalarList", "float7")] == [None] * 5


@pytest.mark.parametrize(
    ("shapes", "types", "values"),
    [
        ("", "", ""),
        ("[[8,768],[768", '["float","float"]', ""),
        ("{}", '["float"]', ""),
        ("[[8,768]]", '["float","float"]', ""),
        ("[[8,768],[767,2304]]", '["float","float"]', ""),
        ("[[8,-768],[-768,2304]]", '["float","float"]', ""),
        ('[["a",768],[768,2304]]', '["float","float"]', ""),
        ("[[8,768],[768,2304]]", '["float","Scalar"]', ""),
        ("[[8,768],[768,2304]]", '["float",3]', ""),
        ("[[8,768],[768,2304]]", '["float","float"]', '["","","",""]'),
        ("[" * 5000 + "]" * 5000, '["float"]', ""),
        ("[" * 100 + "]" * 100, '["float"]', ""),
    ],
)
def test_malformed_signatures_have_no_cost(shapes: str, types: str, values: str) -> None:
    assert cost_of_signature("aten::mm", shapes, types, values) is None


def test_parse_call_says_what_is_malformed() -> None:
    with pytest.raises(MalformedCall, match="not JSON"):
        parse_call("aten::mm", "[[8,", "[]")


_shape = st.lists(st.sampled_from([0, 1, 1, 2, 2, 2, 4]), max_size=5)
_tensor = st.tuples(_shape, st.sampled_from(["float", "c10::Half", "long int", "bool"]), st.just(""))
_tensors = st.tuples(st.lists(_shape, max_size=3), st.just("TensorList"), st.just(""))
_numbers = ["0", "1", "-1", "3", "0.5", "inf", "nan", "True", "1e308", "99999999999999999999"]
_scalar = st.tuples(st.just([]), st.sampled_from(["Scalar", ""]), st.sampled_from(["", "same", *_numbers]))
_list = st.tuples(st.just([]), st.just("ScalarList"), st.sampled_from(["", "[]", "[0]", "[-1, 1]", "[2, 2]", "[True]"]))
_inputs = st.lists(_tensor | _tensor | _scalar | _list | _tensors, max_size=12)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(sorted(FORMULAS)), _inputs)
def test_no_signature_raises_or_costs_less_than_nothing(name: str, inputs: list[tuple[object, str, str]]) -> None:
    shapes, types, values = zip(*inputs, strict=True) if inputs else ((), (), ())
    cost = cost_of_signature(name, json.dumps(shapes), json.dumps(types), json.dumps(values))
    assert cost is None or min(cost.flops, cost.read_bytes, cost.write_bytes, cost.weight_bytes) >= 0


def test_views_and_communication_have_no_cost() -> None:
    for name in ("view", "reshape", "transpose", "t", "permute", "expand", "slice", "as_strided", "unsqueeze", "empty"):
        assert cost_of_signature(f"aten::{name}", "[[8,768],[]]", '["float",""]', '["",""]') is None
    assert cost_of_signature("record_param_comms", "[[8,768]]", '["float"]', "") is None


def test_a_second_formula_for_an_op_is_refused() -> None:
    with pytest.raises(DuplicateFormulaError, match="aten::mm"):
        costs("aten::mm")(lambda _: None)


def test_lists_that_the_profiler_elides() -> None:
    """The profiler writes [] for a list of more than 30 tensors, and never writes a list's element type."""
    elided = ("aten::_foreach_add_", "[[],[],[]]", '["TensorList","TensorList","Scalar"]', '["","","1"]')
    assert cost_of_signature(*elided) is None
    cost = cost_of_signature(*elided, list_dtype="c10::BFloat16", list_elements=1000)
    assert cost is not None
    assert (cost.flops, cost.read_bytes, cost.write_bytes, cost.precision) == (1000, 4000, 2000, "bf16")
