"""The statistics of the gate: their rates, by simulation, and the distributions that they use."""

import math

import numpy as np
import pytest

from tracekit.analyzers.check import (
    Budget,
    Ratio,
    Rules,
    RunTimes,
    basis_of,
    change_points,
    compare_counters,
    compare_times,
    counter_values,
    judged,
)
from tracekit.analyzers.check.ratios import paired, ratios_of_steps
from tracekit.analyzers.core import digamma, t_quantile, trigamma, trigamma_inverse
from tracekit.analyzers.results import COUNTS
from tracekit.analyzers.trace import Latency

PARTS = {f"h.{block}.{name}": us for block in range(6) for name, us in (("attn", 30.0), ("mlp", 60.0))}


def run(random, steps=12, slow=None, by=1.03):
    """Return a run with its own drift, noise in each step of each part, and a few slow steps."""
    drift, parts = math.exp(random.normal(0, 0.005)), {}
    for name, us in PARTS.items():
        own = math.exp(random.normal(0, 0.002)) * (by if name == slow else 1.0)
        late = np.where(random.random(steps) < 0.02, 1.5, 1.0)
        parts[name] = (us * 1e3 * drift * own * late * np.exp(random.normal(0, 0.01, steps))).tolist()
    host = np.exp(random.normal(0, 0.01, steps))
    return RunTimes(
        unprofiled=None,
        steps_ns=(1.3 * np.sum(list(parts.values()), axis=0) * host).tolist(),
        parts={"layer": parts},
    )


def runs(random, count, **more):
    return [run(random, **more) for _ in range(count)]


@pytest.mark.parametrize(
    ("probability", "df", "expected"),
    [
        (0.975, 4, 2.77645),
        (0.995, 10, 3.16927),
        (0.9999, 8, 6.44200),
        (0.99995, 2, 99.9925),
        (0.975, math.inf, 1.95996),
    ],
)
def test_quantiles_of_student(probability, df, expected):
    assert t_quantile(probability, df) == pytest.approx(expected, rel=1e-5)


def test_digamma_and_trigamma():
    assert digamma(1.0) == pytest.approx(-0.5772157, abs=1e-6)
    assert trigamma(1.0) == pytest.approx(math.pi**2 / 6, abs=1e-6)
    assert trigamma_inverse(trigamma(2.5)) == pytest.approx(2.5)


def test_the_rate_of_false_alarms_and_of_regressions_that_are_noticed():
    random, rules, pairs = np.random.default_rng(7), Rules(), 120
    alarms = sum(
        any(change.outcome in ("regressed", "improved") for change in compare_times(a, b, "runs", rules))
        for a, b in ((runs(random, 4), runs(random, 4)) for _ in range(pairs))
    )
    assert alarms <= 4  # 1 % expected at most; more than 4 of 120 has a probability below 1 %
    named = 0
    for _ in range(30):
        changes = compare_times(runs(random, 4), runs(random, 4, slow="h.2.mlp"), "runs", rules)
        named += {change.name for change in changes if change.outcome == "regressed"} == {"h.2.mlp"}
    assert named >= 27


def test_a_slower_machine_slows_the_step_and_no_part_of_it():
    random = np.random.default_rng(2)
    slower = [
        RunTimes(
            unprofiled=None,
            steps_ns=[1.1 * ns for ns in each.steps_ns],
            parts={"layer": {name: [1.1 * ns for ns in times] for name, times in each.parts["layer"].items()}},
        )
        for each in runs(random, 4)
    ]
    latency, *parts = compare_times(runs(random, 4), slower, "runs", Rules())
    assert latency.outcome == "regressed"
    assert {part.outcome for part in parts} <= {"pass", "inconclusive"}


def test_work_that_moved_elsewhere_did_not_change_the_rest():
    random = np.random.default_rng(3)
    faster = [
        RunTimes(
            unprofiled=None,
            steps_ns=each.steps_ns,
            parts={
                "layer": {n: [t * (0.5 if "mlp" in n else 1.0) for t in ts] for n, ts in each.parts["layer"].items()}
            },
        )
        for each in runs(random, 4)
    ]
    changes = compare_times(runs(random, 4), faster, "runs", Rules())
    assert not [change.name for change in changes if change.outcome == "regressed"]


def test_one_run_a_side_is_judged_with_the_assumed_spread():
    random = np.random.default_rng(4)
    one, other = runs(random, 1), runs(random, 1)
    assert basis_of(one, other, modelled=False) == "steps"
    assert compare_times(one, other, "steps", Rules())[0].outcome == "inconclusive"
    assert compare_times(one, other, "steps", Rules(run_spread=0.0, margin=0.03))[0].outcome == "pass"
    double = [RunTimes(unprofiled=None, steps_ns=[2 * ns for ns in other[0].steps_ns], parts={})]
    assert compare_times(one, double, "steps", Rules())[0].outcome == "regressed"


def test_one_step_says_nothing():
    one = [RunTimes(unprofiled=None, steps_ns=[1e6], parts={})]
    other = [RunTimes(unprofiled=None, steps_ns=[3e6], parts={})]
    change = compare_times(one, other, "steps", Rules())[0]
    assert change.outcome == "inconclusive"
    assert change.ratio.high > 1e3


def test_modelled_times_are_exact():
    latency = Latency(median_us=100.0, p10_us=90.0, p90_us=120.0, samples=5)
    before = [RunTimes(unprofiled=latency, steps_ns=[1e5] * 3, parts={"layer": {"a": [5e4] * 3}})]
    longer = Latency(median_us=102.0, p10_us=90.0, p90_us=120.0, samples=5)
    after = [RunTimes(unprofiled=longer, steps_ns=[1e5] * 3, parts={"layer": {"a": [5.2e4] * 3}})]
    changes = compare_times(before, after, "modelled", Rules())
    assert [(change.name, change.outcome) for change in changes] == [("", "regressed"), ("a", "regressed")]
    assert changes[0].ratio == Ratio(1.02, 1.02, 1.02)
    assert compare_times(before, before, "modelled", Rules())[0].outcome == "pass"


@pytest.mark.parametrize(
    ("ratio", "outcome"),
    [
        (Ratio(1.02, 1.03, 1.04), "regressed"),
        (Ratio(1.001, 1.005, 1.009), "pass"),
        (Ratio(1.001, 1.005, 1.02), "inconclusive"),
        (Ratio(0.9, 0.95, 0.99), "improved"),
        (Ratio(0.9, 0.97, 1.005), "pass"),
        (Ratio(0.9, 1.2, 1.6), "inconclusive"),
    ],
)
def test_verdict_on_an_interval(ratio, outcome):
    assert ratio.outcome(0.01) == outcome


def test_times_measured_in_turn_cancel_a_drift():
    drifting = [
        (100.0 * (1 + 0.1 * block), 105.0 * (1 + 0.1 * block) * (1 + 0.001 * (-1) ** block)) for block in range(8)
    ]
    ratio = paired(drifting, 0.01)
    assert ratio.low > 1.04
    assert ratio.value == pytest.approx(1.05, abs=0.001)


def test_counters_are_compared_exactly():
    before = {"launches": (235.0,), "flops": (1e9,), "kernels": (200.0, 210.0), "kernels:gemm": (4.0,)}
    after = {"launches": (236.0,), "flops": (1e9,), "kernels": (205.0, 230.0), "kernels:norm": (1.0,)}
    changes = {each.name: each for each in compare_counters(before, after, {}, ())}
    assert changes["launches"].outcome == "regressed"
    assert changes["flops"].outcome == "pass"
    assert changes["kernels"].outcome == "pass"  # both vary, and overlap
    assert changes["kernels"].varies
    assert changes["kernels:norm"].outcome == "regressed"
    assert not changes["kernels:norm"].decides
    assert compare_counters(before, after, {"launches": 0.01}, ())[0].name == "kernels"
    assert {each.name: each.outcome for each in compare_counters(before, after, {"launches": 0.01}, ())}[
        "launches"
    ] == "pass"
    assert not {each.name: each.decides for each in compare_counters(before, after, {}, ("flops",))}["flops"]


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        ((25, 24, 25, 24, 25, 23), (41, 40, 41, 40, 41, 23), "regressed"),
        ((41, 40, 41, 40, 41, 23), (25, 24, 25, 24, 25, 23), "improved"),
        ((23, 25, 25, 25, 25, 60), (23, 41, 41, 41, 41, 60), "regressed"),
        ((60, 24, 24, 24), (41, 41, 41, 41), "regressed"),
        ((25, 24, 25, 24, 25, 23), (25, 23, 25, 24, 25, 25), "pass"),
        ((24, 40, 24, 40), (40, 24, 40, 24), "pass"),
    ],
)
def test_one_unusual_step_hides_no_change_of_a_counter(before, after, outcome):
    sides = [
        counter_values([COUNTS.frame({"step": range(len(side)), "counter": ["kernels"] * len(side), "value": side})])
        for side in (before, after)
    ]
    (change,) = compare_counters(*sides, {}, ())
    assert change.outcome == outcome


def test_budgets_are_judged_by_intervals():
    random = np.random.default_rng(5)
    several, counters = runs(random, 4), {"kernels": (12.0,)}
    total = 540e3 * 1.3
    lines = judged(
        Budget(
            latency_ms=total * 1.1 / 1e6,
            layers_ms={"h.*.mlp": 0.03, "h.0": 0.2, "nothing.*": 1.0},
            counters={"kernels": 12, "launches": 3},
        ),
        several,
        counters,
        "runs",
        Rules(),
    )
    outcomes = {line.name: line.outcome for line in lines}
    assert outcomes.pop("layer h.0") == "pass"  # what lies below a layer counts
    assert {outcomes.pop(f"layer h.{block}.mlp") for block in range(6)} == {"regressed"}
    assert outcomes == {
        "latency": "pass",
        "layer nothing.*": "inconclusive",
        "kernels": "pass",
        "launches": "inconclusive",
    }
    tight = judged(Budget(latency_ms=total / 1e6), several[:1], counters, "steps", Rules())
    assert tight[0].outcome == "inconclusive"


def test_change_points():
    random = np.random.default_rng(6)
    level = np.repeat([10.0, 10.6, 9.0], [15, 20, 10])
    assert change_points(level * np.exp(random.normal(0, 0.008, 45))) == [15, 35]
    assert change_points(10 * np.exp(random.normal(0, 0.02, 60))) == []
    assert change_points([5.0]) == []


@pytest.mark.filterwarnings("error")
def test_an_unbounded_interval_is_no_warning():
    """Two steps of one run on each side bound the ratios of many parts by nothing."""
    before, after = np.random.default_rng(0).normal(3, 30, (2, 18, 2))
    ratios = ratios_of_steps(before, after, (1, 1), 0.02, 0.05, together=True)
    assert any(each.high == math.inf for each in ratios)
