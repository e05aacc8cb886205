"""Which optimizations a run gains from: each is predicted, the rest is listed with the reason against it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd

from tracekit.analyzers import problems
from tracekit.analyzers.evidence import Statements, of_step, say
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.values import Considered, MemoryFit, PlanStep, Recommendation
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.transforms.fusion_plan import fusion_plan
from tracekit.analyzers.transforms.work_after import predicted_work
from tracekit.optimizations import OPTIMIZATIONS, find, in_order
from tracekit.optimizations.base import Optimization
from tracekit.planning.explain import change
from tracekit.planning.memory_fit import fitting_first, memory_fit
from tracekit.planning.scenarios import speedup, too_large
from tracekit.planning.search import WORTHWHILE, Search, Steps
from tracekit.planning.starting_point import start_of

LOSING = 0.97
"""What promises less than this at the upper end is in no plan."""


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
    """The analysis with its recommendations, best lower end first (throughput after latency), and all considered."""
    if base is None:
        return replace(analysis, considered=_nothing_to_predict(analysis))
    found, start = advise(base), start_of(base)
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


def advise(base: Baseline) -> Advice:
    search = Search(base)
    fit, making_fit = memory_fit(search)
    judged = [(optimization, _judge(optimization, search)) for optimization in OPTIMIZATIONS]
    able = [optimization for optimization, option in judged if not (_loses(option) or optimization.unsuited(base))]
    steps = search.plan(able, making_fit)
    if fit:
        judged = fitting_first(judged, fit, making_fit, search)
        steps = steps if making_fit else ()
    worth = [(o, c) for o, c in judged if c.recommended]
    worth.sort(key=lambda pair: _order(pair[0], pair[1], making_fit))
    return Advice(
        recommendations=tuple(_recommendation(o, c, base) for o, c in worth),
        considered=tuple(c for _, c in judged),
        plan=tuple(_plan_step(search, steps[:i], step) for i, step in enumerate(steps)),
        latency_steps=in_order(step for step in steps if not step.throughput),
        predicted_work=predicted_work(dict(_runs(search, [(o,) for o, _ in worth], steps))),
        memory_fit=fit,
    )


def _order(optimization: Optimization, option: Considered, first: Steps) -> tuple[bool, bool, float]:
    """What makes the run fit comes first, throughput last, and the best lower end before others."""
    is_first = any(step.id == optimization.id for step in first)
    return not is_first, optimization.throughput, -option.speedup.low if option.speedup else 0.0


def fit_problems(fit: MemoryFit | None) -> list[problems.Found]:
    """The problem that a run does not fit; none where it fits."""
    if fit is None:
        return []
    detail = f"it needs {fit.needed_bytes / 1e9:,.1f} GB, and the {fit.gpu} has {fit.available_bytes / 1e9:,.0f} GB"
    return [problems.found("does-not-fit", detail=detail)]


def _runs(search: Search, alone: list[Steps], plan: Steps) -> Iterator[tuple[str, tuple[pd.DataFrame, pd.DataFrame]]]:
    """Op lists before and after the last step of each, as expected."""
    for steps in [*alone, *(plan[: i + 1] for i in range(len(plan)))]:
        if any(step.of_a_pass for step in steps):
            continue
        before, after = search.scenarios(steps[:-1]).expected, search.scenarios(steps).expected
        yield "+".join(step.name for step in steps), (before.ops, after.ops)


def _judge(optimization: Optimization, search: Search) -> Considered:
    objection = optimization.objection(search.base)
    if objection:
        return _refused(optimization, objection)
    after = search.scenarios((optimization,))
    refused = too_large(after.expected, search.base)
    if refused:
        return _refused(optimization, refused)
    gain = speedup(search.scenarios(()), after)
    rival = _simpler(optimization, gain, search) if gain.low >= WORTHWHILE else ()
    rival = optimization.unsuited(search.base) or rival
    worth = (gain.low >= WORTHWHILE and not rival) or optimization.needed(search.base)
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
    """What speaks for the part of it alone; empty when it promises more than its part, or has none."""
    if not optimization.contains:
        return ()
    part = find(optimization.contains)
    if part.objection(search.base) or speedup(search.scenarios(()), search.scenarios((part,))).low < gain.low:
        return ()
    return (say("part-gives-more", of_step("part", "name", part.title)),)


def _loses(option: Considered) -> bool:
    """At its best: no step before it makes a gain of that."""
    return option.speedup is not None and option.speedup.high < LOSING


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
        how_to=optimization.how_to(base),
        caveats=(*optimization.caveats, *optimization.notes(base)),
        explained=considered.explained,
        costs=optimization.costs,
    )


def _plan_step(search: Search, before: Steps, step: Optimization) -> PlanStep:
    start, after = search.scenarios(before), search.scenarios((*before, step))
    cumulative = speedup(search.scenarios(()), after)
    capture = after.expected.source.capture
    return PlanStep(
        name=step.name,
        title=step.title,
        speedup=speedup(start, after),
        cumulative=cumulative,
        latency_us=latency_us(search.base, cumulative, after.work),
        throughput=step.throughput,
        memory_bytes=capture.peak_memory_bytes if capture and capture.peak_memory_bytes else None,
        explained=change(search.base, after.expected, after.work),
        how_to=step.how_to(start.expected),
        caveats=(*step.caveats, *step.notes(start.expected)),
        costs=step.costs,
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
