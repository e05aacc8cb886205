"""Mixtures of experts: the products of all experts in one kernel, or in a loop."""

import pytest
from msgspec.structs import replace
from op_lists import base, elementwise

from tracekit.advise import find, parse
from tracekit.analyzers.cost import Cost, Product, estimate_ns
from tracekit.analyzers.cost.ops.work import touched

EXPERTS, WIDTH, ROWS = 64, 2048, 256
GROUPED = "aten::_grouped_mm"


def experts(rows, precision):
    groups, element = touched(rows, EXPERTS), 4 if precision == "fp32" else 2
    work = Product(groups, -(-rows // groups), WIDTH, WIDTH, weight="b", routed=rows, experts=EXPERTS)
    weights, moved = groups * element * WIDTH * WIDTH, element * rows * WIDTH
    return Cost(2 * rows * WIDTH**2, weights + moved, moved, "gemm", precision, weights, work)


def looping(gpu="h100"):
    """Return a loop over experts: the sizes of the groups are copied to the host, then each expert has a product."""
    run, cost = base(gpu, layers=1, precision="fp32"), experts(ROWS, "fp32")
    copy = elementwise(EXPERTS, "fp32", "copy")
    rows = {"name": ["aten::copy_", GROUPED, "aten::mul"], "call": [GROUPED, GROUPED, "aten::mul"]}
    rows |= {"category": ["memcpy", "kernel", "kernel"], "sync": [True, False, False], "launches": [1, EXPERTS, 1]}
    rows |= {"cost": [copy, cost, elementwise(ROWS * WIDTH, "fp32")], "kernel_ns": [2e3, 1e6, 1e4]}
    ops = run.ops[:3].assign(**rows)
    changed = replace(run, ops=ops, stated_ns=0.0)
    return replace(changed, stated_ns=changed.latency_ns)


def test_bf16_has_one_kernel_for_all_experts_and_reads_nothing_back():
    before = looping()
    after = find("half-precision").transform(before, "expected")
    assert list(after.name) == [GROUPED, "aten::mul"]
    assert after.launches.tolist() == [2, 1]
    modelled = estimate_ns(experts(ROWS, "bf16"), before.gpu)
    assert after.kernel_ns[0] == pytest.approx(modelled, rel=0.3)


@pytest.mark.parametrize(("gpu", "name"), [("a100", "half-precision"), ("h100", "half-precision:fp16")])
def test_elsewhere_the_loop_stays(gpu, name):
    after = parse(name).transform(looping(gpu), "expected")
    assert after.launches.tolist() == [1, EXPERTS, 1]
    assert after.sync.any()
