"""Predicts every optimization of a run, and finds the best plan."""

from collections.abc import Iterator, Mapping

import msgspec
import pandas as pd
from msgspec import structs

from tracekit.advise.catalogue import OPTIMIZATIONS, find, in_order
from tracekit.advise.fitting import fitting_first, memory_fit
from tracekit.advise.gains import WORTHWHILE, usefulness, worthwhile
from tracekit.advise.limits import slowest_ns
from tracekit.advise.optimization import Optimization
from tracekit.advise.outcomes import Scenarios, change, speedup, too_large
from tracekit.advise.search import Search, Steps
from tracekit.analyzers.core import Interval, counted
from tracekit.analyzers.predict import Baseline, OpList, predicted_work
from tracekit.analyzers.results import Considered, MemoryFit, PlanStep, Recommendation, Statements, of_step, say

LOSING = 1.0
"""An optimization whose expected speed-up alone is lower than this is in no plan."""

Judged = tuple[Optimization, Considered]


class Advice(msgspec.Struct, frozen=True):
    """The advice for a run; recommendations are in order of usefulness."""

    recommendations: tuple[Recommendation, ...]
    considered: tuple[Considered, ...]
    """All optimizations, in the order of the registry."""
    plan: tuple[PlanStep, ...]
    latency_steps: Steps
    """The steps of the plan, without that for throughput, in the order in which they are applied."""
    predicted_work: pd.DataFrame
    """PREDICTED_WORK of each recommendation alone and of each step of the plan."""
    memory_fit: MemoryFit | None = None
    failed: Mapping[str, str] = {}
    """What went wrong in the optimizations that could not be judged, by id."""


def advise(base: Baseline) -> Advice:
    """Judge every optimization for the run, and search for the best plan."""
    search = Search(base)
    fit, making_fit = memory_fit(search)
    judgements = [(optimization, judge(optimization, search)) for optimization in counted(OPTIMIZATIONS, "predicting")]
    sound = [(optimization, option) for optimization, option in judgements if optimization.id not in search.failed]
    candidates = [optimization for optimization, option in sound if _may_be_planned(optimization, option, base)]
    steps = search.plan(candidates, making_fit)
    if fit:
        judgements = fitting_first(judgements, fit, making_fit, search)
        steps = steps if making_fit else ()
    worth = _ordered([(o, c) for o, c in judgements if c.recommended], steps)
    return Advice(
        recommendations=tuple(
            Recommendation(**structs.asdict(c), evidence=o.evidence(base), **o.terms(base)) for o, c in worth
        ),
        considered=tuple(c for _, c in judgements),
        plan=tuple(_plan_step(search, steps[:i], step) for i, step in enumerate(steps)),
        latency_steps=in_order(step for step in steps if not step.throughput),
        predicted_work=predicted_work(dict(_runs(search, [(o,) for o, _ in worth], steps))),
        memory_fit=fit,
        failed=search.failed,
    )


def _ordered(worth: list[Judged], steps: Steps) -> list[Judged]:
    """Return the steps of the plan, then the others by usefulness."""
    planned = [step.id for step in steps if step is steps[0] or not step.throughput]

    def rank(pair: Judged) -> tuple[int, bool, bool, float]:
        optimization, option = pair
        at = planned.index(optimization.id) if optimization.id in planned else len(planned)
        use = usefulness(option.speedup, optimization.effort) if option.speedup else 0.0
        return at, bool(optimization.condition), optimization.throughput, -use

    return sorted(worth, key=rank)


def _may_be_planned(optimization: Optimization, option: Considered, base: Baseline) -> bool:
    """Return whether the optimization may be a step of a plan.

    It may if it does not lose alone, or saves memory that the run needs. One that does not apply yet may apply after
    another step.
    """
    rivalled = any(each.kind == "part-gives-more" for each in option.reason)
    loses = option.speedup is not None and option.speedup.expected < LOSING
    return not (rivalled or optimization.unsuited(base)) and (not loses or optimization.needed(base))


def _runs(search: Search, alone: list[Steps], plan: Steps) -> Iterator[tuple[str, tuple[OpList, OpList]]]:
    """Yield the names of the steps, and the expected op lists before and after the last of them."""
    for steps in [*alone, *(plan[: i + 1] for i in range(len(plan)))]:
        if any(step.of_a_pass for step in steps):
            continue
        before, after = search.scenarios(steps[:-1]).expected, search.scenarios(steps).expected
        yield "+".join(step.name for step in steps), (before.ops, after.ops)


def _plan_step(search: Search, before: Steps, step: Optimization) -> PlanStep:
    start, after = search.scenarios(before), search.scenarios((*before, step))
    cumulative = speedup(search.scenarios(()), after)
    memory = after.expected.memory
    return PlanStep(
        id=step.id,
        name=step.name,
        title=step.title,
        speedup=speedup(start, after),
        cumulative=None if step.throughput else cumulative,
        latency_us=latency_us(search.base, cumulative, after),
        memory_bytes=memory.peak if memory else None,
        explained=change(search.base, after.expected, after.work),
        **step.terms(start.expected),
    )


def latency_us(base: Baseline, gain: Interval, after: Scenarios) -> Interval:
    """Return the latency of a step after a change, in µs: the stated one, divided by the speed-up. The largest speed-up
    is that of the slowest step before."""
    times = (base.stated_ns, slowest_ns(after.after.values(), base))
    stated, slowest = (each * after.work / 1e3 for each in times)
    expected = stated / gain.expected
    return Interval(min(max(stated, slowest) / gain.high, expected), expected, stated / gain.low)


_ENOUGH = 0.95
"""Fraction of a gain, in the logarithm, above which a part of an optimization is recommended without the rest."""


def judge(optimization: Optimization, search: Search) -> Considered:
    """Return whether to recommend the optimization, with its predicted speed-up and the reasons. One that fails is
    refused, and is a problem of the analysis."""
    with search.spared(optimization):
        return _judged(optimization, search)
    return refused(optimization, f"It could not be judged ({search.failed[optimization.id]}): a bug of tracekit.")


def _judged(optimization: Optimization, search: Search) -> Considered:
    objection = optimization.obstacle(search.base)
    if objection:
        return refused(optimization, objection)
    if needed := search.before(optimization):
        return refused(optimization, f"First comes what it needs, and what pays alone: {needed[0].id}.")
    after = search.scenarios((optimization,))
    memory = too_large(after.expected, search.base)
    if memory:
        return refused(optimization, memory)
    gain, sure = speedup(search.scenarios(()), after), search.gain((optimization,))
    pays = worthwhile(optimization, sure)
    rival = optimization.unsuited(search.base) or (_simpler(optimization, sure, search) if pays else ())
    worth = (pays and not rival) or optimization.needed(search.base) or search.is_hidden(optimization)
    return Considered(
        id=optimization.id,
        title=optimization.title,
        recommended=worth,
        reason=optimization.reason(search.base) if worth else rival or _objections(gain),
        speedup=gain,
        explained=change(search.base, after.expected, after.work),
        notes=() if worth or rival else optimization.notes(search.base),
    )


def refused(optimization: Optimization, objection: str) -> Considered:
    """Return an optimization that does not apply, with the objection."""
    return Considered(id=optimization.id, title=optimization.title, speedup=None, objection=objection)


def _simpler(optimization: Optimization, gain: Interval, search: Search) -> Statements:
    """Return the reason to prefer one part of the optimization alone; empty if it has no parts, or the lower end of its
    gain is notably higher than that of each part."""
    for part in map(find, optimization.contains):
        alone = 0.0 if part.obstacle(search.base) else search.gain((part,)).low
        if alone >= WORTHWHILE and alone > min(gain.low / WORTHWHILE, gain.low**_ENOUGH):
            return (say("part-gives-more", of_step("part", "name", part.title)),)
    return ()


def _objections(gain: Interval) -> Statements:
    """Return the reason against an optimization with this gain."""
    verdict = "changes-nothing" if gain.high < WORTHWHILE else "may-not-pay"
    return (say("slower" if gain.high < 1 else verdict),)
