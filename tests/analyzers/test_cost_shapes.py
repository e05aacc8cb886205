"""Derived shapes and dtypes equal those of torch."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from recorded_calls import CPP_NAMES, meta

from tracekit.analyzers.cost import Tensor, tensors
from tracekit.analyzers.cost.ops.tensors import MalformedCall, broadcast, promote, reduced

_shapes = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@settings(deadline=None)
@given(_shapes, _shapes, _shapes)
def test_broadcast(a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...]) -> None:
    try:
        expected = tuple(torch.broadcast_shapes(a, b, c))
    except RuntimeError:
        with pytest.raises(MalformedCall):
            broadcast(a, b, c)
    else:
        assert broadcast(a, b, c) == expected


@settings(deadline=None)
@given(_shapes, st.data(), st.booleans())
def test_reduction(shape: tuple[int, ...], data: st.DataObject, keepdim: bool) -> None:
    rank = len(shape)
    chosen = data.draw(st.lists(st.integers(0, rank - 1), unique=True)) if rank else []
    dims = [dim - rank if data.draw(st.booleans()) else dim for dim in chosen]
    assert reduced(shape, dims, keepdim) == tuple(torch.sum(meta(*shape), dims, keepdim=keepdim).shape)


def test_dims_out_of_range() -> None:
    with pytest.raises(MalformedCall):
        reduced((2, 3), (2,), False)


_names = [dtype for dtype in CPP_NAMES if not dtype.is_complex and dtype != torch.float8_e4m3fn]


@settings(deadline=None)
@given(st.lists(st.sampled_from(_names), min_size=1, max_size=3))
def test_promotion_of_tensors(names: list[torch.dtype]) -> None:
    expected = names[0]
    for name in names[1:]:
        expected = torch.promote_types(expected, name)
    assume(not {torch.uint8, torch.int8} <= set(names))  # whose common type, int16, is not modelled
    assert promote([_tensor(name, (2,)) for name in names]).name == str(expected).removeprefix("torch.")


@settings(deadline=None)
@given(st.sampled_from(_names), st.sampled_from(_names))
def test_promotion_with_a_number_of_no_dims(dtype: torch.dtype, number: torch.dtype) -> None:
    expected = torch.result_type(meta(2, dtype=dtype), meta(dtype=number))
    if number == torch.float64 and not dtype.is_floating_point:
        expected = torch.float32  # a 0-d double is taken for a Python number
    assert promote([_tensor(dtype, (2,)), _tensor(number, ())]).name == str(expected).removeprefix("torch.")


def _tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    entry = tensors.find(CPP_NAMES[dtype])
    assert entry is not None
    return Tensor(shape, entry)
