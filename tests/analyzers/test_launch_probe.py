"""The time from the return of a launch call to the start of its kernel, in a trace."""

from pathlib import Path

import pytest
from handmade import Handmade

from tracekit.analyzers.trace import Trace, load
from tracekit.calibrate.device_probes import launch_us_of


def launches(count: int, delay_us: float) -> Trace:
    """Return kernels that start this long after their calls return, each before the next call."""
    trace = Handmade()
    for number in range(count):
        trace.launched("add", 20.0 * number, 20.0 * number + 1 + delay_us + number % 3 - 1, 1.5)
    return trace.trace()


def test_launch_latency_is_told_by_a_trace_or_not_at_all() -> None:
    assert launch_us_of(launches(30, 1.75)) == pytest.approx(1.75)
    assert launch_us_of(launches(10, 1.75)) is None
    assert launch_us_of(launches(30, -0.5)) is None


def test_launches_of_a_real_trace() -> None:
    """Its median launch is to an idle device, as the host sets its pace."""
    trace = load(Path(__file__).parents[2] / "examples" / "traces" / "h200_gpt2_decode.json.gz")
    assert launch_us_of(trace) == pytest.approx(1.8, abs=0.3)
