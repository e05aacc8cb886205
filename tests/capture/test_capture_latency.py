"""Times of steps, by a fake clock."""

import numpy as np
import pytest

from tracekit.capture import latency, phase
from tracekit.run import environment


class FakeClock:
    """A clock whose marks are the instants of a list, in microseconds."""

    def __init__(self):
        self.now = 0.0

    def mark(self):
        return self.now

    def microseconds(self, first, last):
        return last - first

    def synchronize(self):
        self.now += 1e6


def test_percentiles_are_those_of_numpy():
    samples = [5.0, 1.0, 4.0, 100.0, 2.0, 3.5]
    summary = latency.summarize(samples)
    assert (summary.median_us, summary.samples) == (3.75, 6)
    assert [summary.p10_us, summary.p90_us] == pytest.approx(np.percentile(samples, [10, 90]))
    assert latency.summarize([7.0]) == latency.Latency(7.0, 7.0, 7.0, 1)


def test_a_generation_is_timed_by_token():
    clock = FakeClock()

    def step(emitter):
        for name, takes in [("prefill", 50.0), ("decode", 10.0), ("decode", 12.0)]:
            with phase(name, emitter):
                clock.now += takes

    times = latency.time_step(step, clock)
    assert (times.step.median_us, times.step.samples) == (72.0, latency.MOST_SAMPLES)
    assert times.phases["time_to_first_token"] == latency.Latency(50.0, 50.0, 50.0, latency.MOST_SAMPLES)
    between = times.phases["time_between_tokens"]
    assert (between.median_us, between.p10_us, between.p90_us) == (11.0, 10.0, 12.0)
    assert between.samples == 2 * latency.MOST_SAMPLES


def test_one_phase_says_nothing_that_the_step_does_not():
    def step(emitter):
        with phase("prefill", emitter):
            pass

    assert latency.time_step(step, FakeClock()).phases == {}


def test_a_slow_step_is_sampled_a_few_times(monkeypatch):
    monkeypatch.setattr(latency, "BUDGET_S", 0.0)
    assert latency.time_step(lambda _: None, FakeClock()).step.samples == latency.FEWEST_SAMPLES


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("570.86.15, 1980, 3201", ("570.86.15", 1980, 3201)),
        ("570.86.15, [N/A], 3201", ("570.86.15", 0, 3201)),
        ("", ("", 0, 0)),
        ("No devices were found", ("", 0, 0)),
    ],
)
def test_the_answer_of_nvidia_smi(answer, state):
    state_of_gpu = environment.parse_state("GPU", answer)
    assert (state_of_gpu.driver, state_of_gpu.sm_clock_mhz, state_of_gpu.memory_clock_mhz) == state


def test_versions_name_what_the_run_depends_on():
    import torch

    assert environment.versions()["torch"] == torch.__version__
    assert set(environment.versions()) <= {"torch", "transformers", "cuda"}
