"""Which optimizations a run gains from: each is predicted, the rest is listed with the reason against it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd

from tracekit.analyzers import problems
from tracekit.analyzers.evidence import Statements, of_step, say
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.values import Considered, MemoryFit, PlanStep, PredictedBaseline, Recommendation
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.transforms.fusion_plan import fusion_plan
from tracekit.analyzers.transforms.work_after import predicted_work
from tracekit.optimizations import OPTIMIZATIONS, find, in_order
from tracekit.optimizations.base import Optimization
from tracekit.planning.explain import change
from tracekit.planning.memory_fit import fitting_first, memory_fit
from tracekit.planning.scenarios import speedup, too_large
from tracekit.planning.search import WORTHWHILE, Search, Steps, worthwhile
from tracekit.planning.starting_point import start_of
from tracekit.reports.numbers import duration

LOSING = 1.0
"""What is expected to give less than this alone is in no plan."""


Judged = tuple[Optimization, Considered]


@dataclass(frozen=True)
class Advice:
    """What was found about a run, the most useful first."""

    recommendations: tuple[Recommendation, ...]
    considered: tuple[Considered, ...]
    """Every optimization, in the registry's order."""
    plan: tuple[PlanStep, ...]
    latency_steps: Steps
    """Of the plan, without the one for throughput; in the order in which they are applied."""
    predicted_work: pd.DataFrame
    """PREDICTED_WORK of each recommendation alone, and of each step of the plan."""
    memory_fit: MemoryFit | None = None


def recommend(analysis: Analysis, base: Baseline | None) -> Analysis:
    """The analysis with all that was considered, what is recommended, and the plan.

    The recommendations begin with the steps of the plan; the others follow by their expected gains,
    throughput after latency, and what needs something that the run does not have last. Where the simulation of the
    unmodified step does not reproduce it, no gain is predicted and nothing is recommended.
    """
    if base is None:
        return replace(analysis, considered=_nothing_to_predict(analysis))
    start = start_of(base)
    if not start.understood:
        return _without_predictions(analysis, base, start)
    found = advise(base)
    return replace(
        analysis,
        bound=analysis.bound.with_idle(start.idle_share),
        recommendations=found.recommendations,
        considered=found.considered,
        plan=found.plan,
        fusion_plan=fusion_plan(base),
        predicted_work=found.predicted_work,
        predicted_from=start,
        memory_fit=found.memory_fit,
        problems=problems.concat(analysis.problems, problems.table(fit_problems(found.memory_fit))),
    )


def _without_predictions(analysis: Analysis, base: Baseline, start: PredictedBaseline) -> Analysis:
    """What can be done to the run, without gains: its step is not understood."""
    assert start.failed
    fit, _ = memory_fit(Search(base))
    detail = f"{duration(start.failed.simulated_us)} instead of {duration(start.failed.stated_us)}"
    if start.timed == "profiled":
        start = replace(start, idle_share=analysis.recorded_idle_share)
    return replace(
        analysis,
        bound=analysis.bound.with_idle(start.idle_share),
        considered=tuple(_unpredicted(optimization, base) for optimization in OPTIMIZATIONS),
        problems=problems.concat(
            analysis.problems,
            problems.table([problems.problem("step-not-reproduced", 1, detail), *fit_problems(fit)]),
        ),
        memory_fit=fit,
        predicted_from=start,
    )


def _unpredicted(optimization: Optimization, base: Baseline) -> Considered:
    objection = optimization.obstacle(base)
    if objection:
        return _refused(optimization, objection)
    return Considered(optimization.id, optimization.title, False, (say("not-predicted"),), None)


def advise(base: Baseline) -> Advice:
    search = Search(base)
    fit, making_fit = memory_fit(search)
    judged = [(optimization, _judge(optimization, search)) for optimization in OPTIMIZATIONS]
    candidates = [optimization for optimization, option in judged if _may_be_planned(optimization, option, base)]
    steps = search.plan(candidates, making_fit)
    if fit:
        judged = fitting_first(judged, fit, making_fit, search)
        steps = steps if making_fit else ()
    worth = _ordered([(o, c) for o, c in judged if c.recommended], steps)
    return Advice(
        recommendations=tuple(_recommendation(o, c, base) for o, c in worth),
        considered=tuple(c for _, c in judged),
        plan=tuple(_plan_step(search, steps[:i], step) for i, step in enumerate(steps)),
        latency_steps=in_order(step for step in steps if not step.throughput),
        predicted_work=predicted_work(dict(_runs(search, [(o,) for o, _ in worth], steps))),
        memory_fit=fit,
    )


def fit_problems(fit: MemoryFit | None) -> list[problems.Problem]:
    """The problem that a run does not fit; none where it fits."""
    if fit is None:
        return []
    detail = f"it needs {fit.needed_bytes / 1e9:,.1f} GB, and the {fit.gpu} has {fit.available_bytes / 1e9:,.0f} GB"
    return [problems.problem("does-not-fit", detail=detail)]


def _ordered(worth: list[Judged], steps: Steps) -> list[Judged]:
    """The steps of the plan first, then by the expected gain."""
    planned = [step.id for step in steps if step is steps[0] or not step.throughput]

    def rank(pair: Judged) -> tuple[int, bool, bool, float]:
        optimization, option = pair
        at = planned.index(optimization.id) if optimization.id in planned else len(planned)
        gain = option.speedup.expected if option.speedup else 0.0
        return at, bool(optimization.condition), optimization.throughput, -gain

    return sorted(worth, key=rank)


def _may_be_planned(optimization: Optimization, option: Considered, base: Baseline) -> bool:
    """Whether it is not known to lose alone, or it saves memory that the run needs; what cannot be done yet may be
    possible after another step."""
    rivalled = any(each.kind == "part-gives-more" for each in option.reason)
    loses = option.speedup is not None and option.speedup.expected < LOSING
    return not (rivalled or optimization.unsuited(base)) and (not loses or optimization.needed(base))


def _runs(search: Search, alone: list[Steps], plan: Steps) -> Iterator[tuple[str, tuple[pd.DataFrame, pd.DataFrame]]]:
    """Op lists before and after the last step of each, as expected."""
    for steps in [*alone, *(plan[: i + 1] for i in range(len(plan)))]:
        if any(step.of_a_pass for step in steps):
            continue
        before, after = search.scenarios(steps[:-1]).expected, search.scenarios(steps).expected
        yield "+".join(step.name for step in steps), (before.ops, after.ops)


def _judge(optimization: Optimization, search: Search) -> Considered:
    objection = optimization.obstacle(search.base)
    if objection:
        return _refused(optimization, objection)
    after = search.scenarios((optimization,))
    refused = too_large(after.expected, search.base)
    if refused:
        return _refused(optimization, refused)
    gain = speedup(search.scenarios(()), after)
    pays = worthwhile(optimization, gain)
    rival = optimization.unsuited(search.base) or (_simpler(optimization, gain, search) if pays else ())
    worth = (pays and not rival) or optimization.needed(search.base)
    return Considered(
        optimization.id,
        optimization.title,
        worth,
        optimization.reason(search.base) if worth else rival or _against(gain),
        gain,
        change(search.base, after.expected, after.work),
        notes=() if worth or rival else optimization.notes(search.base),
    )


def _refused(optimization: Optimization, objection: str) -> Considered:
    return Considered(optimization.id, optimization.title, False, (), None, objection=objection)


def _simpler(optimization: Optimization, gain: Interval, search: Search) -> Statements:
    """What speaks for a part of it alone; empty when it promises notably more than each part, or has none."""
    for part in map(find, optimization.contains):
        alone = 0.0 if part.obstacle(search.base) else search.gain((part,)).low
        if alone >= WORTHWHILE and alone * WORTHWHILE > gain.low:
            return (say("part-gives-more", of_step("part", "name", part.title)),)
    return ()


def _against(gain: Interval) -> Statements:
    verdict = "changes-nothing" if gain.high < WORTHWHILE else "may-not-pay"
    return (say("slower" if gain.high < 1 else verdict),)


def _recommendation(optimization: Optimization, considered: Considered, base: Baseline) -> Recommendation:
    assert considered.speedup is not None
    return Recommendation(
        id=optimization.id,
        title=optimization.title,
        speedup=considered.speedup,
        reason=considered.reason,
        evidence=optimization.evidence(base),
        how_to=optimization.how(base),
        caveats=(*optimization.caveats, *optimization.notes(base)),
        explained=considered.explained,
        costs=optimization.costs,
        throughput=optimization.throughput,
        condition=optimization.condition,
    )


def _plan_step(search: Search, before: Steps, step: Optimization) -> PlanStep:
    start, after = search.scenarios(before), search.scenarios((*before, step))
    cumulative = speedup(search.scenarios(()), after)
    capture = after.expected.source.capture
    return PlanStep(
        name=step.name,
        title=step.title,
        speedup=speedup(start, after),
        cumulative=None if step.throughput else cumulative,
        latency_us=latency_us(search.base, cumulative, after.work),
        throughput=step.throughput,
        memory_bytes=capture.peak_memory_bytes if capture and capture.peak_memory_bytes else None,
        explained=change(search.base, after.expected, after.work),
        how_to=step.how(start.expected),
        caveats=(*step.caveats, *step.notes(start.expected)),
        costs=step.costs,
        condition=step.condition,
    )


def latency_us(base: Baseline, gain: Interval, work: float) -> Interval:
    """The stated latency over the speed-up of a step, which does `work` times as much."""
    stated = base.stated_ns * work / 1e3
    return Interval(stated / gain.high, stated / gain.expected, stated / gain.low)


def _nothing_to_predict(analysis: Analysis) -> tuple[Considered, ...]:
    return tuple(_refused(optimization, why_nothing(analysis)) for optimization in OPTIMIZATIONS)


def why_nothing(analysis: Analysis) -> str:
    """Why a trace has no baseline to predict from."""
    if analysis.source.device == "cpu":
        return "The trace has no GPU work to predict from."
    if analysis.source.gpu is None:
        return "The trace does not name a GPU that tracekit knows: name it with --gpu."
    return "No step that the trace marks holds GPU work."
