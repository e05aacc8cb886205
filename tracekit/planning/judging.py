"""Judges an optimization for a run: does it apply, what is its speed-up, and is it worth recommending?"""

from tracekit.analyzers.evidence import Statements, of_step, say
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.values import Considered
from tracekit.optimizations import find
from tracekit.optimizations.base import Optimization
from tracekit.planning.explain import change
from tracekit.planning.scenarios import speedup, too_large
from tracekit.planning.search import WORTHWHILE, Search, worthwhile

_ENOUGH = 0.95
"""Fraction of a gain, in the logarithm, above which a part of an optimization is recommended without the rest."""


def judge(optimization: Optimization, search: Search) -> Considered:
    """Return whether to recommend the optimization, with its predicted speed-up and the reasons."""
    objection = optimization.obstacle(search.base)
    if objection:
        return refused(optimization, objection)
    after = search.scenarios((optimization,))
    memory = too_large(after.expected, search.base)
    if memory:
        return refused(optimization, memory)
    gain, sure = speedup(search.scenarios(()), after), search.gain((optimization,))
    pays = worthwhile(optimization, sure)
    rival = optimization.unsuited(search.base) or (_simpler(optimization, sure, search) if pays else ())
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


def refused(optimization: Optimization, objection: str) -> Considered:
    """Return an optimization that does not apply, with the objection."""
    return Considered(optimization.id, optimization.title, False, (), None, objection=objection)


def _simpler(optimization: Optimization, gain: Interval, search: Search) -> Statements:
    """Return the reason to prefer one part of the optimization alone; empty if it has no parts, or the lower end of its
    gain is notably higher than that of each part."""
    for part in map(find, optimization.contains):
        alone = 0.0 if part.obstacle(search.base) else search.gain((part,)).low
        if alone >= WORTHWHILE and alone > min(gain.low / WORTHWHILE, gain.low**_ENOUGH):
            return (say("part-gives-more", of_step("part", "name", part.title)),)
    return ()


def _against(gain: Interval) -> Statements:
    """Return the reason against an optimization with this gain."""
    verdict = "changes-nothing" if gain.high < WORTHWHILE else "may-not-pay"
    return (say("slower" if gain.high < 1 else verdict),)


def unpredicted(optimization: Optimization, base: Baseline) -> Considered:
    """Return an optimization without a predicted gain, because the simulation does not reproduce the step."""
    objection = optimization.obstacle(base)
    if objection:
        return refused(optimization, objection)
    return Considered(optimization.id, optimization.title, False, (say("not-predicted"),), None)
