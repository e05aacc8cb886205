"""Searches for the best plan: a few optimizations together, whose combinations are simulated."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations, pairwise
from traceback import extract_tb

from tracekit.advise.catalogue import OPTIMIZATIONS, find, in_order
from tracekit.advise.combined import conflict
from tracekit.advise.gains import LARGE, WORTHWHILE, pays, usefulness, worthwhile
from tracekit.advise.optimization import Optimization, run_after
from tracekit.advise.outcomes import OUTCOMES, Scenarios, simulated, to_decide, too_large
from tracekit.analyzers.core import Interval
from tracekit.analyzers.predict import Baseline, Outcome

_LITTLE = 0.6
"""Fraction of the GPU's work that remains without waste, below which the waste comes first, whatever it gains now."""
_MOSTLY = 0.5
"""Fraction of a step in which the GPU must work for its waste to come first, whatever it gains now."""
_OF_THE_MOST = 0.5
"""Fraction of the largest gain of a step, in the logarithm, above which the fix of a mistake comes first."""
_AWAITED = 0.5
"""Part of that fraction from which the fix of a mistake comes first for which another step waits."""
_NEARLY = 0.95
"""Fraction of a plan's gain, in the logarithm, with which a lighter step replaces another that contains it."""
LONGEST = 4
"""Most steps of a plan, not counting the one for throughput."""
_TO_RANK: tuple[Outcome, ...] = ("worst", "expected")
"""The outcomes from which the lower end and the expected value of a speed-up follow."""
_KEPT, _PROMISING = 2, 0.8
"""Number of partial plans that the search continues from, of those with this fraction of the best plan's gain."""

Steps = tuple[Optimization, ...]


class Search:
    """Simulates combinations of optimizations of one run, each of them once."""

    def __init__(self, base: Baseline) -> None:
        self.base = base
        self._applied: dict[tuple[str, Outcome], Baseline] = {("", outcome): base for outcome in OUTCOMES}
        self._scenarios: dict[tuple[str, bool], Scenarios] = {}
        self._refused: dict[tuple[str, str], bool] = {}
        self.failed: dict[str, str] = {}
        """What went wrong in the optimizations that failed, by id: bugs, each of which costs its own advice alone."""

    def plan(self, candidates: Sequence[Optimization] = OPTIMIZATIONS, start: Steps = ()) -> Steps:
        """Return the best plan: at most `LONGEST` steps for latency, then at most one for throughput.

        The plan begins with the steps in `start`, independent of their gain. Then come fixes of mistakes that another
        step waits for, or that gain at least half as much alone, in the logarithm, as the best step. The other steps
        follow, best first. Each gains enough after those before it. An optimization with a requirement that the run
        does not meet is in a plan only if there is no other step.
        """
        hidden = tuple(each for each in candidates if each not in start and self.is_hidden(each))
        steps = self._planned(candidates, (*start, *hidden))
        others = tuple(each for each in steps if each not in hidden)
        if hidden and not self._pays(others, steps):
            return self._planned(candidates, start)
        return self._gaining_first(others, start, hidden) if hidden else steps

    def _gaining_first(self, steps: Steps, start: Steps, hidden: Steps) -> Steps:
        """Return the steps and hidden waste, which comes after other large waste that gains already."""
        waste = [each for each in steps if each.needless and each not in start and self._is_large(each)]
        first = (*start, *(each for each in waste if worthwhile(each, self.gain((each,)))))
        return (*first, *hidden, *(each for each in steps if each not in first))

    def is_hidden(self, step: Optimization) -> bool:
        """Return whether the step is waste that the host's work hides now: without it, the GPU has far less work, and
        the run may become faster on another host or once its launches are fewer."""
        if not step.needless or step.condition or not self._allowed((step,)) or not self._is_large(step):
            return False
        gain = self.gain((step,))
        return not worthwhile(step, gain) and gain.high >= LARGE

    def _planned(self, candidates: Sequence[Optimization], start: Steps) -> Steps:
        free = [each for each in candidates if not each.condition]
        latency = [each for each in free if not each.throughput]
        together = self._sure(self._pruned(self._beam(latency, start), start), start)
        alone = [self._sure(steps, start) for steps in self._grown([(start, each) for each in latency])]
        steps = max([together, *alone], key=self._expected)
        steps = self._with_fixes(steps, [each for each in latency if each.fixes_mistake])
        steps = self._fixes_first(self._lighter(steps[len(start) :], candidates), start)
        more = self._grown([(steps, each) for each in free if each.throughput])
        planned = self._sure(max(more, key=self._expected, default=steps), steps)
        return planned or self._conditional([each for each in candidates if each.condition])

    def _conditional(self, candidates: Sequence[Optimization]) -> Steps:
        """Return the best candidate alone, preferably one for latency."""
        alone = sorted(self._grown([((), each) for each in candidates]), key=self._expected, reverse=True)
        return self._sure(min(alone, key=lambda steps: steps[0].throughput, default=()), ())

    def _lighter(self, steps: Steps, candidates: Sequence[Optimization]) -> Steps:
        """Replace a step by the parts of it that give nearly the gain of the whole plan with the least effort."""
        for step in steps:
            parts = [each for each in candidates if each.id in step.contains and each not in steps]
            for some in sorted(_some_of(parts), key=lambda some: sum(each.effort for each in some)):
                others = tuple(other for each in steps for other in (some if each is step else (each,)))
                lighter = sum(each.effort for each in some) < step.effort and self._allowed(others)
                if (
                    lighter
                    and self._each_gains(others)
                    and math.log(self._expected(others)) >= _NEARLY * math.log(self._expected(steps))
                ):
                    return others
        return steps

    def _each_gains(self, steps: Steps) -> bool:
        """Return whether each step is expected to gain enough after those that are applied before it."""
        gains = [self._expected(in_order(steps)[:count]) for count in range(len(steps) + 1)]
        return all(more >= WORTHWHILE * fewer for fewer, more in pairwise(gains))

    def _with_fixes(self, steps: Steps, fixes: Sequence[Optimization]) -> Steps:
        """Add each fix of a mistake that gains enough after the steps before it, or alone if one of them hides it."""
        for fix in fixes:
            more = (*steps, fix)
            both = ((more, steps), ((fix,), ()))
            if fix not in steps and self._allowed(more) and any(worthwhile(fix, self.gain(*each)) for each in both):
                steps = more
        return steps

    def _fixes_first(self, steps: Steps, start: Steps) -> Steps:
        """Return `start` and the steps, beginning with fixes of mistakes that gain enough alone or beside the others.

        Mistakes are fixed first, unless another step gains far more and does not wait for the fix. Work of no use
        comes before everything, if the step without it is a tenth faster, or without much of its work. Of several, what
        a trace shows comes before what it lets suspect, and then the most useful.
        """
        alone = {step: math.log(self._expected((step,))) for step in steps}
        added = {step: math.log(self._expected(steps) / self._expected(tuple({*steps} - {step}))) for step in steps}
        awaited = {name for step in steps for name in step.after}
        first = [step for step in steps if step.needless and (alone[step] >= math.log(LARGE) or self._is_large(step))]
        part = {step: _OF_THE_MOST * (_AWAITED if step.id in awaited else 1.0) for step in steps}
        large = {step for step in steps if max(alone[step], added[step]) >= part[step] * max(alone.values())}
        fixes = [step for step in steps if step.fixes_mistake and (step in first or step in large)]
        fixes.sort(key=lambda step: (step not in first, step.suspected, -usefulness(self.gain((step,)), 1.0)))
        kept = start
        for step in fixes * 2:  # one may gain only after another, which the step waits for
            more = (*kept, step)
            if step not in kept and self._allowed(more) and worthwhile(step, self.gain(more, kept)):
                kept = more
        return self._ranked(kept, [each for each in steps if each not in fixes])

    def _is_large(self, step: Optimization) -> bool:
        """Return whether a GPU that works for most of the step has far less work without a step's waste, even if the
        host hides that now."""
        if self.base.busy_ns < _MOSTLY * self.base.latency_ns:
            return False
        return self._run_after((step,), "expected").busy_ns <= _LITTLE * self.base.busy_ns

    def _ranked(self, kept: Steps, steps: Sequence[Optimization]) -> Steps:
        """Add the steps that gain enough after those before them, each time the most useful one. Where none does alone,
        such as shorter kernels and shorter launches of a step that waits for both, all of them are added that gain
        enough together."""
        gains = {step: self.gain((*kept, step), kept) for step in steps if self._allowed((*kept, step))}
        ready = [step for step in gains if worthwhile(step, gains[step])]
        if not ready:
            together = (*kept, *steps)
            return together if steps and self._allowed(together) and pays(self.gain(together, kept)) else kept
        best = max(ready, key=lambda step: usefulness(gains[step], step.effort))
        return self._ranked((*kept, best), [step for step in steps if step is not best])

    def gain(self, steps: Steps, before: Steps = ()) -> Interval:
        """Return the speed-up by `steps` relative to `before`, over all outcomes, to decide by."""
        return to_decide(self.scenarios(before), self.scenarios(steps))

    def before(self, step: Optimization) -> Steps:
        """Return what the step needs and would bring along, where that pays alone: it comes first, and then the step
        gains what it adds."""
        needed = [find(name) for name in step.brings]
        return tuple(each for each in needed if not each.obstacle(self.base) and self._pays((), (each,)))

    @contextmanager
    def spared(self, step: Optimization) -> Iterator[None]:
        """Keep what an optimization raises in `failed`, unless memory is short."""
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:
            at = extract_tb(error.__traceback__)[-1]
            self.failed[step.id] = f"{type(error).__name__} in {at.name}, line {at.lineno}: {error}"

    def allows(self, steps: Steps) -> bool:
        """Return whether the steps can be applied to the run together."""
        return self._allowed(steps)

    def scenarios(self, steps: Steps) -> Scenarios:
        """Return all outcomes of the steps together."""
        return self._simulated(steps, OUTCOMES)

    def _beam(self, candidates: Sequence[Optimization], start: Steps) -> Steps:
        best, front = start, [start]
        for _ in range(LONGEST):
            grown = self._grown([(steps, each) for steps in front for each in candidates])
            distinct = {_key(in_order(steps)): steps for steps in reversed(grown)}.values()
            front = sorted(distinct, key=self._expected, reverse=True)[:_KEPT]
            best = max([best, *front], key=self._expected)
            front = [steps for steps in front if self._expected(steps) >= _PROMISING * self._expected(best)]
        return best

    def _grown(self, pairs: Sequence[tuple[Steps, Optimization]]) -> list[Steps]:
        """Return each plan extended by one step, if that applies and gains enough."""
        grown = [(steps, (*steps, each)) for steps, each in pairs]
        return [more for steps, more in grown if self._allowed(more) and self._pays(steps, more)]

    def _pruned(self, steps: Steps, start: Steps) -> Steps:
        """Remove the steps that gain too little once the later steps are applied."""
        for each in steps[len(start) :]:
            others = tuple(other for other in steps if other is not each)
            if not self._pays(others, steps) and self._allowed(others):
                return self._pruned(others, start)
        return steps

    def _sure(self, steps: Steps, start: Steps) -> Steps:
        """Keep the steps that gain enough after those before them, judged by all outcomes."""
        kept = start
        for step in steps[len(start) :]:
            more = (*kept, step)
            if self._allowed(more) and pays(self.gain(more, kept)):
                kept = more
        return kept

    def _allowed(self, steps: Steps) -> bool:
        together = in_order(steps)
        if conflict(together) or not all(set(self.before(step)) <= set(steps) for step in steps):
            return False
        return not any(self._refuses(together[:i], step) for i, step in enumerate(together))

    def _refuses(self, before: Steps, step: Optimization) -> bool:
        key = (_key(before), step.name)
        if key not in self._refused:
            self._refused[key] = True
            start, after = self._run_after(before, "expected"), (*before, step)
            with self.spared(step):
                refused = step.obstacle(self._run_after(before, "worst")) or too_large(
                    self._run_after(after, "expected"), start
                )
                self._refused[key] = refused is not None
        return self._refused[key]

    def _pays(self, fewer: Steps, more: Steps) -> bool:
        """Return whether the added steps gain enough, without the upper end, or the lower one of too small a gain."""
        if self._expected(more) < WORTHWHILE * self._expected(fewer):
            return False
        return pays(to_decide(self._simulated(fewer, _TO_RANK), self._simulated(more, _TO_RANK)))

    def _expected(self, steps: Steps) -> float:
        """Return the expected gain of the steps, by which plans are ranked."""
        after = self._run_after(in_order(steps), "expected")
        return self._work(in_order(steps)) * self.base.latency_ns / after.latency_ns

    def _simulated(self, steps: Steps, outcomes: tuple[Outcome, ...]) -> Scenarios:
        ordered = in_order(steps)
        key = (_key(ordered), outcomes == OUTCOMES)
        if key not in self._scenarios:
            after = {outcome: self._run_after(ordered, outcome) for outcome in outcomes}
            by_hand = any(step.fixes_mistake for step in ordered)
            keeps = all(step.keeps_kernels for step in ordered)
            self._scenarios[key] = simulated(after, self.base, self._work(ordered), (), by_hand, keeps)
        return self._scenarios[key]

    def _work(self, ordered: Steps) -> float:
        """Return the work of a step afterwards, relative to the baseline."""
        return math.prod(step.work(self._run_after(ordered[:i], "expected")) for i, step in enumerate(ordered))

    def _run_after(self, ordered: Steps, outcome: Outcome) -> Baseline:
        key = (_key(ordered), outcome)
        if key not in self._applied:
            self._applied[key] = run_after(ordered[-1], self._run_after(ordered[:-1], outcome), outcome)
        return self._applied[key]


def _some_of(steps: Sequence[Optimization]) -> list[Steps]:
    return [some for number in range(1, len(steps) + 1) for some in combinations(steps, number)]


def _key(steps: Steps) -> str:
    return "+".join(step.name for step in steps)
