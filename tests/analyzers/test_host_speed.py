"""The speed of a run's host: told by its launch calls, and by a latency of another minute."""

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace
from op_lists import base

from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict import Outside, plain_launch_ns
from tracekit.analyzers.predict.fitted_baseline import timed
from tracekit.analyzers.predict.host import LAUNCH_CALL_NS, host_speed

H200 = hardware.find("h200")
SHARE = Interval(0.45, 0.58, 0.68)


def speed(durations_ns, name="cudaLaunchKernel"):
    calls = pd.DataFrame({"name": name, "duration_ns": durations_ns})
    work = pd.DataFrame({"category": "kernel", "launch": range(len(calls))})
    return host_speed(work, calls, H200)


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "cuLaunchKernelEx", "hipExtModuleLaunchKernel"])
def test_launch_calls_that_take_twice_as_long_are_of_a_host_half_as_fast(name):
    slow = speed([2 * LAUNCH_CALL_NS] * 30 + [1e6] * 10, name)
    assert (slow.ratio, slow.source) == (2.0, "calls")


def test_few_calls_or_calls_that_copy_say_nothing():
    assert speed([9e3] * 19).source == "assumed"
    assert speed([9e3] * 30, "cudaMemcpyAsync") == speed([9e3] * 19)


def test_a_latency_of_a_faster_minute_makes_the_host_faster_by_half_of_it():
    run = base(host_us=100.0)
    usual = replace(run, stated_ns=run.latency_ns * (1 - SHARE.expected))
    faster = replace(run, stated_ns=usual.stated_ns / 2)
    assert timed(usual, SHARE).host_speed.ratio == pytest.approx(run.host_speed.ratio, rel=0.05)
    assert timed(faster, SHARE).host_speed.ratio == pytest.approx(run.host_speed.ratio / 2**0.5, rel=0.05)
    assert plain_launch_ns(timed(faster, SHARE)) < plain_launch_ns(run)


def test_a_latency_below_that_of_the_kernels_scales_them():
    """It leaves no room for work outside the model, of which there is none either."""
    run = base(host_us=1.0)
    short = replace(run, stated_ns=run.latency_ns / 2, outside=Outside())
    assert short.stated_ns <= timed(short, SHARE).latency_ns < run.latency_ns


def test_a_host_bound_step_that_is_told_to_be_longer_has_a_slower_host():
    run = replace(base(host_us=100.0), outside=Outside())
    longer = replace(run, stated_ns=1.3 * run.latency_ns)
    assert timed(longer, SHARE).latency_ns == pytest.approx(longer.stated_ns, rel=0.01)


def test_a_latency_does_not_tell_how_long_the_host_works_while_the_device_is_busy():
    hidden = Outside(np.array(["preprocessing"], dtype=object), np.array([1e5]), np.array([0.0]))
    run = base(host_us=5.0)
    run = replace(run, outside=hidden, ops=run.ops.assign(kernel_ns=run.ops.kernel_ns + 1e6))
    assert timed(replace(run, stated_ns=1.05 * run.latency_ns), SHARE).outside.total() == pytest.approx(1e5)
