"""Shapes of an op's inputs, as traces record them."""

import pytest

from tracekit.analyzers.trace import recorded_dims, recorded_shapes, recorded_type


@pytest.mark.parametrize(
    ("shapes", "dims"),
    [
        ("[[2, 3], []]", [2, 3]),
        ("[[]]", []),
        ("[[0, 7]]", [0, 7]),
        ("[]", []),
        ("", []),
        ('[["2"]]', []),
        ("[[2.0]]", []),
        ("[[-1, 4]]", []),
        (f"[[{10**400}]]", []),
        (f"[[0, {10**400}]]", []),
        (f"[[{', '.join(['99'] * 64)}]]", []),
        ("[" * 100_000, []),
    ],
    ids=lambda value: str(value)[:20],
)
def test_only_shapes_that_a_tensor_can_have_are_read(shapes, dims):
    assert recorded_dims(shapes, 0) == dims


def test_what_is_no_shape_is_told_from_a_number():
    assert recorded_shapes("[[], null, [2, 3], [-1]]") == [[], None, [2, 3], None]


@pytest.mark.parametrize(("types", "first"), [('["float", "int"]', "float"), ("[3]", ""), ("[]", ""), ("{", "")])
def test_the_type_of_the_first_input(types, first):
    assert recorded_type(types) == first
