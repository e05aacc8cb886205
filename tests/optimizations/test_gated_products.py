"""An activation and its gate are one kernel of generated code, after the product between them."""

import op_lists
import pytest

from tracekit.analyzers.predict import gates_first
from tracekit.analyzers.predict.op_columns import op_list

HIDDEN, INNER = 64, 256


def after_product(width, *, reads=2):
    """Return names in order after: gate(x), silu, a product from `width` inputs, and an op that reads two tensors."""
    silu = op_lists.elementwise(INNER, "bf16")
    mul = op_lists.elementwise(INNER, "bf16")
    mul = mul.__class__(mul.flops, reads * mul.read_bytes, mul.write_bytes, mul.family, mul.precision)
    rows = [
        ("gate", op_lists.product(1, INNER, HIDDEN, "bf16")),
        ("silu", silu),
        ("up", op_lists.product(1, INNER, width, "bf16")),
        ("mul", mul),
    ]
    ops = op_list(name=[name for name, _ in rows], cost=[cost for _, cost in rows])
    return list(gates_first(ops).name)


def test_the_activation_waits_for_its_gate():
    assert after_product(HIDDEN) == ["gate", "up", "silu", "mul"]


@pytest.mark.parametrize("rows", [{"width": INNER}, {"width": HIDDEN, "reads": 1}])
def test_it_stays_if_the_product_may_read_it_or_nothing_multiplies_both(rows):
    assert after_product(**rows) == ["gate", "silu", "up", "mul"]
