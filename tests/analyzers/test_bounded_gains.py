"""No gain exceeds what was measured: exposed time, idle time of stalls, and the latency that the recording shows."""

import numpy as np
import op_lists
import pytest
from handmade import Handmade
from msgspec.structs import replace

from tracekit.advise import find, predicted_speedup
from tracekit.analyzers.predict import Outside, start
from tracekit.analyzers.predict.outside import STALL
from tracekit.analyzers.predict.recorded import Recorded

STEPS, KERNELS, STALLED_US = 40, 20, 30_000


def job(beside: bool) -> Handmade:
    """Steps of 10 ms of kernels and a collective of 8 ms, beside them or after them."""
    made = Handmade()
    for step in range(4):
        at = 20_000.0 * step
        made.host("range", f"ProfilerStep#{step}", at, 19_000)
        for number in range(10):
            launched = at + 20 * number
            made.host("op", "aten::mm", launched, 15).launched("k", launched + 5, at + 1000 * number, 990)
        begin = at + (500 if beside else 10_000)
        made.launched("ncclDevKernel_AllReduce_Sum_f32_RING", at + 300, begin, 8_000, stream=9)
    return made


def test_communication_that_is_hidden_already_cannot_be_hidden_again():
    optimization = find("overlap-communication")
    hidden, exposed = (start(job(beside).trace(), op_lists.hardware.find("h100"))[1] for beside in (True, False))
    assert hidden is not None and exposed is not None
    assert optimization.objection(hidden) == "Hardly any communication is exposed."
    assert optimization.objection(exposed) is None
    after = optimization.transform(exposed, "best")
    assert exposed.ops.kernel_ns.sum() - after.kernel_ns.sum() == pytest.approx(8e6, rel=0.02)


def test_the_hidden_part_of_a_collective_stays():
    base = op_lists.base()
    half = np.full(len(base.ops), 0.5)
    known = replace(base, recorded=replace(Recorded(), exposed=half))
    assert known.recorded.exposed_ns(base.ops).sum() == pytest.approx(base.ops.kernel_ns.sum() / 2)


def stalling() -> Handmade:
    """Steps that keep the device busy, with one long allocation in each tenth."""
    made, at, free = Handmade(), 0.0, 0.0
    for step in range(STEPS):
        begin = at
        for number in range(KERNELS):
            if number == 0 and step % 10 == 9:
                made.host("runtime", "cudaMallocAsync", at, STALLED_US)
                at += STALLED_US
            free = max(free, at + 10) + 100
            made.host("op", "aten::mm", at, 8).launched("k", at + 2, free - 100, 99)
            at += 12
        made.host("range", f"ProfilerStep#{step}", begin, at - begin)
    return made


def test_a_stall_is_hidden_by_nothing_and_saved_whole():
    _, base = start(stalling().trace(), op_lists.hardware.find("h100"))
    assert base is not None
    stalls = base.outside.ns[base.outside.place == STALL]
    assert base.outside.stalled_ns() == stalls.sum() > 1e6
    saved = base.latency_ns - replace(base, outside=Outside()).latency_ns
    assert saved >= stalls.sum()


def test_a_stall_is_nowhere_among_the_ops():
    stall = Outside(np.array(["allocation"], dtype=object), np.array([5e6]), np.array([STALL]))
    assert not stall.before_each(10).any()
    assert stall.stalled_ns() == 5e6 and stall.tail_ns == 0


def test_a_gain_is_at_most_what_the_recorded_latency_leaves():
    base = op_lists.base(host_us=2.0, tokens=4096)
    work = Outside(np.array(["python"], dtype=object), np.array([0.5 * base.latency_ns]), np.array([0.0]))
    base = replace(base, outside=work)
    base = replace(base, stated_ns=base.latency_ns)
    most = base.stated_ns / base.busy_ns * np.exp(0.03)
    assert predicted_speedup(find("preprocessing"), base).high <= most * 1.001


def test_without_pytorch_an_allocation_in_each_step_is_waste():
    base = op_lists.base()
    allocates = Outside(np.array(["allocation"], dtype=object), np.array([5e6]), np.array([0.0]))
    base = replace(base, outside=allocates)
    base = replace(base, stated_ns=base.latency_ns)
    plain = replace(base, ops=base.ops.assign(name="stencil", call="stencil"))
    waste = find("memory-management")
    assert waste.obstacle(base) and waste.obstacle(plain) is None
    assert "cudaMallocAsync" in waste.how(plain)
