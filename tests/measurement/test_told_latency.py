"""The latency of a step that the user measured: what it changes, and where it is refused."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import structs
from msgspec.structs import replace

import tracekit
from tracekit.analyzers.core import InputError, Interval
from tracekit.analyzers.results import Verification, Verified
from tracekit.analyzers.trace import load, single
from tracekit.capture import complete
from tracekit.cli import main
from tracekit.measure.expectations import Expectations
from tracekit.measure.verifying import _Again, _rescaled_to_pace
from tracekit.reports.answer import headline
from tracekit.run import Settings

TRACES = Path(__file__).parents[2] / "examples" / "traces"
DECODE = TRACES / "h200_gpt2_decode.json.gz"


def test_a_faster_host_leaves_less_to_gain():
    recorded = tracekit.predict(DECODE, "cuda-graphs")
    took_ms = recorded.baseline.latency_us / 1e3
    faster = tracekit.predict(DECODE, "cuda-graphs", latency_ms=took_ms / 2)
    assert faster.baseline.latency_us == pytest.approx(recorded.baseline.latency_us / 2)
    assert 1 < faster.speedup.expected < 0.7 * recorded.speedup.expected
    assert tracekit.predict(DECODE, "cuda-graphs", latency_ms=took_ms).speedup == recorded.speedup


def test_the_page_starts_from_the_latency_that_was_told():
    done = CliRunner().invoke(main, ["analyze", str(DECODE), "--latency-ms", "3.5"])
    assert done.exit_code == 0, done.output
    assert "unprofiled 3.50 ms;" in done.output
    told, recorded = tracekit.analyze(DECODE, latency_ms=3.5), tracekit.analyze(DECODE)
    assert told.latency.unprofiled == single(3.5) and told.latency.profiled_us == recorded.latency.profiled_us
    slower = tracekit.analyze(DECODE, latency_ms=recorded.latency.unprofiled.median_us / 500)
    assert slower.bound.launch > recorded.bound.launch


def test_steps_that_are_shorter_in_the_trace_are_said():
    recorded = tracekit.analyze(DECODE)
    longer = tracekit.analyze(DECODE, latency_ms=recorded.latency.profiled_us / 100)
    assert "steps in the trace are shorter" in headline(longer)
    assert longer.missing_share == pytest.approx(0.9)
    assert "shorter-steps" in set(longer.problems["code"]) - set(recorded.problems["code"])


def test_a_modelled_run_has_no_measured_latency():
    trace = load(DECODE)
    capture = structs.replace(trace.metadata.capture, source="modelled")
    with pytest.raises(InputError, match="modelled"):
        replace(trace, metadata=replace(trace.metadata, capture=capture)).timed(single(9.0))


@pytest.mark.parametrize(("pace", "again"), [(0.5, True), (1.05, False), (1.5, True)])
def test_a_run_at_another_pace_is_predicted_again(pace, again):
    expectations = Expectations(DECODE)
    before = single(pace * expectations.latency_us / 1e3)
    predicted = expectations.predict("cuda-graphs").speedup
    result = Verified("cuda-graphs", "", predicted, Interval(1.0, 1.0, 1.0), before=before)
    verification = Verification("", {}, 0, "", {}, 1, "tokens", 0, (result,))
    run = _Again(complete(Settings(model="gpt2", workload="decode", device="cpu")), True, iter, list, True)
    (last,) = _rescaled_to_pace(verification, run, expectations.latency_us, DECODE).results
    assert bool(last.repredicted) == again
    if again:
        assert (last.repredicted.expected < predicted.expected) == (pace < 1)
        assert replace(last, repredicted=None) == result
