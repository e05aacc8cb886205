"""The best plan, and its advice."""

from functools import cache
from itertools import combinations

import pytest
from op_lists import base

from tracekit.advise import (
    OPTIMIZATIONS,
    WORTHWHILE,
    Combined,
    Optimization,
    Search,
    advise,
    find,
    in_order,
    pays,
    predicted_speedup,
    refusal,
)
from tracekit.advise.predicted import LOSING
from tracekit.advise.search import LONGEST
from tracekit.analyzers.core import Interval
from tracekit.reports.words import explained, why

RUNS = {
    "launch-bound": base("h200", tokens=1, width=768, heads=12, layers=3, precision="fp32", batch_size=1),
    "device-bound": base(
        "a100", tokens=512, keys=512, width=2048, layers=2, precision="fp32", host_us=2.0, batch_size=1
    ),
    "weights": base("a100", tokens=1, width=4096, layers=2, precision="bf16", host_us=2.0, batch_size=1),
    "old": base("t4", tokens=64, width=1024, layers=2, precision="fp32", batch_size=1),
}
runs = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
advised = cache(advise)
FEW = [find(name) for name in ("half-precision", "tf32", "sdpa", "fused-kernels", "compile", "cuda-graphs")]


def best_of_all(run, candidates):
    """Return the largest expected gain of all combinations that surely pay."""
    best = 1.0
    for length in range(1, LONGEST + 1):
        for chosen in combinations(candidates, length):
            together = Combined(chosen)
            if refusal(together, run) is None:
                gain = predicted_speedup(together, run)
                best = max(best, gain.expected if pays(gain) else 1.0)
    return best


@runs
def test_no_combination_is_much_better_than_the_plan(run):
    search = Search(run)
    steps = search.plan(FEW)
    reached = predicted_speedup(Combined(in_order(steps)), run).expected if steps else 1.0
    # Steps that give less than WORTHWHILE are left out of it, at most LONGEST of them.
    assert best_of_all(run, FEW) <= reached * WORTHWHILE**2


def test_a_mistake_is_fixed_before_something_that_gains_a_little_more(monkeypatch):
    run = RUNS["device-bound"]
    steps = Search(run).plan(FEW)
    assert len(steps) > 1 and not any(step.fixes_mistake for step in steps)
    gains = {step.id: predicted_speedup(step, run).expected for step in steps}
    close = [name for name, gain in gains.items() if gain >= max(gains.values()) ** 0.5]
    for step in steps:
        with monkeypatch.context() as patched:
            patched.setattr(type(step), "fixes_mistake", True)
            first = Search(run).plan(FEW)[0]
        assert (first.id == step.id) == (step is steps[0] or step.id in close)


@runs
def test_each_step_is_worth_it_and_the_gains_chain(run):
    plan = advised(run).plan
    reached = 1.0
    for step in plan:
        assert pays(step.speedup)
        if step.throughput:
            assert step.cumulative is None
        else:
            reached *= step.speedup.expected
            assert step.cumulative.expected == pytest.approx(reached)
        assert step.latency_us.low <= step.latency_us.expected <= step.latency_us.high
    assert [step.throughput for step in plan] == sorted(step.throughput for step in plan)
    assert len([step for step in plan if not step.throughput]) <= LONGEST


@runs
def test_nothing_that_loses_is_recommended_or_planned(run):
    advice = advised(run)
    losing = {each.id for each in advice.considered if each.speedup and each.speedup.expected < LOSING}
    assert not losing & {each.id for each in advice.recommendations}
    assert not losing & {step.name for step in advice.plan}
    assert all(pays(each.speedup) for each in advice.recommendations)
    refused = [each for each in advice.considered if each.speedup is None]
    assert all(each.objection and not each.explained for each in refused)
    told = [explained(each.explained) for each in advice.considered if each.speedup]
    assert all("→" in sentence or "no class" in sentence for sentence in told)


def test_the_best_first_step_comes_first():
    plan = advised(RUNS["launch-bound"]).plan
    assert plan[0].name in ("cuda-graphs", "max-autotune")
    assert "host and gaps" in explained(plan[0].explained)


class Useless(Optimization):
    """An optimization that changes nothing."""

    id, title = "useless", "Useless"

    def objection(self, base):
        return None

    def transform(self, base, outcome):
        return base.ops

    def reason(self, base):
        return ()

    def how_to(self, base):
        return ""

    def apply(self, subject):
        return subject


def test_what_changes_nothing_is_in_no_plan():
    assert Search(RUNS["launch-bound"]).plan([Useless()]) == ()
    steps = Search(RUNS["launch-bound"]).plan([Useless(), find("cuda-graphs")])
    assert [step.id for step in steps] == ["cuda-graphs"]


def test_every_optimization_is_considered_once():
    assert [each.id for each in advised(RUNS["weights"]).considered] == [each.id for each in OPTIMIZATIONS]


def test_what_gives_no_more_than_a_part_of_it_is_not_recommended():
    run = base("t4", tokens=512, width=2048, layers=2, precision="fp32", host_us=2.0, batch_size=1)
    judged = {each.id: each for each in advised(run).considered}
    assert judged["nf4"].speedup.low > WORTHWHILE
    assert judged["half-precision"].recommended
    assert (judged["nf4"].recommended, why(judged["nf4"])) == (
        False,
        "Half precision is a part of it, and gains about as much or more alone.",
    )


@pytest.mark.parametrize(
    ("gain", "enough"),
    [
        (Interval(1.04, 1.05, 1.06), True),
        (Interval(0.90, 1.95, 2.0), True),  # a loss is far below what is expected
        (Interval(0.5, 1.5, 3.0), False),
        (Interval(1.0, 1.06, 1.2), False),  # a small gain must be sure
        (Interval(0.4, 0.9, 1.2), False),
    ],
)
def test_what_pays_is_sure_or_large_where_a_loss_is_unlikely(gain, enough):
    assert pays(gain) == enough
