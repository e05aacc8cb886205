"""The access pattern of a kernel, from shapes, types and strides."""

import json

import pytest

from tracekit.analyzers.cost import Access, Append, Cost, cost_of_signature

F, H, B, L = "float", "c10::Half", "bool", "long int"


def cost(name: str, *inputs: tuple[list[int], str, list[int] | None], values: list[str] | None = None) -> Cost:
    """`inputs`: shape, type, strides."""
    shapes, types, strides = ([one[index] for one in inputs] for index in range(3))
    steps = json.dumps([[] if one is None else one for one in strides])
    texts = [json.dumps(part) for part in (shapes, types, values or [])]
    op_cost = cost_of_signature(f"aten::{name}", *texts, strides_json=steps)
    assert op_cost is not None
    return op_cost


@pytest.mark.parametrize(
    ("inputs", "access"),
    [
        ([([64, 32], F, [32, 1]), ([64, 32], F, [32, 1])], "linear"),
        ([([64, 32], F, [1, 64]), ([64, 32], F, [1, 64])], "linear"),
        ([([64, 32], F, None), ([32], F, None)], "indexed"),
        ([([64, 32], F, [32, 1]), ([64, 32], F, [64, 1])], "indexed"),
        ([([64, 32], F, [32, 1]), ([64, 32], F, [1, 64])], "transposed"),
        ([([64, 32], H, None), ([64, 1], F, None)], "cast"),
        ([([64, 32], F, None), ([64, 32], B, None)], "linear"),
    ],
)
def test_element_wise(inputs: list[tuple[list[int], str, list[int] | None]], access: Access) -> None:
    assert cost("mul", *inputs).access == access


def test_copies() -> None:
    heads = ([1, 8, 16, 4], H, [512, 4, 32, 1])
    dense = ([1, 8, 16, 4], H, [512, 64, 4, 1])
    assert cost("copy_", dense, heads).access == "indexed"
    assert cost("copy_", dense, dense).access == "linear"
    assert cost("copy_", ([8, 4], F, [4, 1]), ([8, 4], F, [1, 8])).access == "transposed"
    assert cost("copy_", ([8], H, [1]), ([8], F, [1])).access == "linear"
    assert cost("copy_", ([8], F, [1]), ([8], H, [1])).access == "cast"


def test_what_expand_repeats_is_read_once() -> None:
    op_cost = cost("copy_", ([2, 4, 8], F, [32, 8, 1]), ([2, 4, 8], F, [8, 0, 1]))
    assert (op_cost.read_bytes, op_cost.write_bytes) == (4 * 16, 4 * 64)


def test_an_expanded_index_is_read_once_a_row() -> None:
    table, index = ([100, 64], F, [64, 1]), ([7, 64], L, [1, 0])
    op_cost = cost("gather", table, ([], "Scalar", None), index, values=["", "0", ""])
    assert (op_cost.read_bytes, op_cost.access) == (4 * 7 * 64 + 8 * 7, "linear")
    each = cost("gather", table, ([], "Scalar", None), ([100, 3], L, [3, 1]), values=["", "1", ""])
    assert (each.read_bytes, each.access) == (4 * 300 + 8 * 300, "scattered")


def test_cat_knows_whether_parts_follow_each_other() -> None:
    parts = ([[4, 8], [4, 8]], "TensorList", None)
    assert cost("cat", parts, ([], "Scalar", None), values=["", "0"]).access == "joined"
    assert cost("cat", parts, ([], "Scalar", None), values=["", "1"]).access == "interleaved"


def test_what_lies_together_is_the_row_of_a_table_or_the_channels() -> None:
    index = ([7], L, [1])
    op_cost = cost("index_select", ([100, 64], F, [64, 1]), ([], "Scalar", None), index, values=["", "0", ""])
    assert (op_cost.run, op_cost.access) == (64, "linear")
    image, kernel = [2, 16, 8, 8], [4, 16, 3, 3]
    steps = {"transposed": [1024, 64, 8, 1], "linear": [1024, 1, 128, 16]}
    for walk, strides in steps.items():
        inputs = [(image, H, strides), (kernel, H, None), ([4], H, None), *[([], "ScalarList", None)] * 3]
        values = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
        op_cost = cost("conv2d", *inputs, ([], "Scalar", None), values=values)
        assert (op_cost.run, op_cost.access) == (16, walk)


def test_reductions_know_their_rows() -> None:
    rest = (([], "ScalarList", None), ([], "Scalar", None), ([], "", None))
    rows, columns, everything = (
        cost("sum", ([16, 32], F, None), *rest, values=["", dims, "False", ""]) for dims in ("[-1]", "[0]", "[0, 1]")
    )
    assert [(one.access, one.row) for one in (rows, columns, everything)] == [
        ("rows", 32),
        ("columns", 16),
        ("rows", 512),
    ]
    assert cost("argmax", ([16, 32], F, None), ([], "Scalar", None), values=["", "1"]).access == "search"


def test_strides_that_fit_no_shape_are_ignored() -> None:
    assert cost("mul", ([64, 32], F, [1]), ([64, 32], F, [32, 1])).access == "linear"


@pytest.mark.parametrize(
    ("first", "second", "dim", "work"),
    [
        ([2, 8, 127, 64], [2, 8, 1, 64], -2, Append(128, 1)),
        ([2, 127, 512], [2, 1, 512], 1, Append(128, 1)),
        ([2, 1, 768], [2, 196, 768], 1, None),
        ([2, 8, 1, 32], [2, 8, 1, 32], -1, None),
        ([2, 127], [2, 1], -1, None),
        ([0], [2, 8, 5, 64], -2, None),
    ],
)
def test_a_cache_that_grows_by_a_row_is_an_append(first, second, dim, work) -> None:
    parts = ([first, second], "TensorList", None)
    assert cost("cat", parts, ([], "Scalar", None), values=["", str(dim)]).work == work
