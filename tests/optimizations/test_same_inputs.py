"""Work that a step repeats on equal inputs: entries of a sparse matrix that are merged in each of its products."""

import numpy as np
from msgspec.structs import replace
from op_lists import elementwise
from test_waste import op, run
from test_work_again import again, given

from tracekit.advise import find
from tracekit.analyzers.cost import Cost

ENTRIES, NODES = 6_000_000, 500_000
SORTS = op("aten::addmm", call="aten::_sparse_mm", ns=2_000_000.0)
NUMBERS = op("aten::arange", Cost(0, 0, 8 * ENTRIES, "copy", "fp32"), call="aten::_sparse_mm")
COLUMN = [
    op(f"aten::{name}", elementwise(ENTRIES, "fp32"), call="aten::_sparse_mm") for name in ("copy_", "div_", "add_")
]
MULTIPLIES = [op(f"aten::{name}", call="aten::_sparse_mm", ns=900_000.0) for name in ("copy_", "addmm")]
STATE = ("float", NODES, 32)


def products(times: int, *before, launches=32, between=()):
    """Return a run of products of a sparse matrix that is not coalesced, but for one with few launches."""
    product = [NUMBERS, SORTS, *COLUMN, *COLUMN, *MULTIPLIES, op("aten::mul_", ns=9_000.0) | given(STATE), *between]
    base = run(*before, *product * times)
    counts = np.where(base.ops.kernel_ns == SORTS["ns"], launches, 1)
    return replace(base, ops=base.ops.assign(launches=counts))


def test_a_sparse_matrix_that_stays_is_merged_once_and_one_that_a_step_makes_in_its_first_product():
    base = products(4)
    assert again(base) and ".coalesce()" in find("computed-again").how_to(base)
    left = find("computed-again").transform(base, "expected").name.tolist()
    assert left == ["aten::copy_", "aten::addmm", "aten::mul_"] * 4
    makes = op("aten::mul", ns=9_000.0) | given(("float", ENTRIES), ("float", ENTRIES))
    assert np.sum(find("computed-again").transform(products(4, makes), "expected").name == "aten::arange") == 1
    assert not again(products(1, makes)) and not again(products(4, launches=3))
    assert not again(products(4, between=[op("aten::bernoulli_", ns=9_000.0)]))
