"""Finds whether a run fits in its GPU's memory, and what makes it fit. This comes before any speed-up."""

from collections.abc import Iterator
from itertools import combinations

from msgspec.structs import replace

from tracekit.advise.catalogue import OPTIMIZATIONS, find, in_order
from tracekit.advise.combined import conflict
from tracekit.advise.optimization import Optimization
from tracekit.advise.outcomes import change, speedup
from tracekit.advise.search import Search, Steps
from tracekit.analyzers.predict import Baseline, largest_that_fits, memory_at_least
from tracekit.analyzers.results import Considered, Evidence, MemoryFit, Remedy, Statements, of_step, say

_SAVES = 0.97
"""A remedy lowers the peak to at most this fraction."""
_SHOWN = 6


def does_not_fit(base: Baseline) -> bool:
    """Return whether the step's peak exceeds the GPU's memory; False if the peak is not known."""
    return base.memory is not None and base.memory.peak > base.gpu.memory_bytes


def memory_fit(search: Search) -> tuple[MemoryFit | None, Steps]:
    """Return the peak, the memory and remedies, and the steps of the best remedy.

    None if the run fits, or its peak is unknown.
    """
    base = search.base
    if base.memory is None or not does_not_fit(base):
        return None, ()
    ranked = sorted(_remedies(search), key=lambda pair: _rank(*pair))
    best = next((steps for steps, remedy in ranked if remedy.fits), ())
    fit = MemoryFit(
        gpu=base.gpu.name,
        needed_bytes=base.memory.peak,
        available_bytes=base.gpu.memory_bytes,
        largest_batch=largest_that_fits(base),
        remedies=tuple(remedy for _, remedy in ranked[:_SHOWN]),
        at_least=memory_at_least(base),
    )
    return fit, best


def saving_remedies(search: Search) -> tuple[Remedy, ...]:
    """Return single optimizations that lower the peak, lowest peak first, whether or not the run fits."""
    alone = [_remedy(search, steps) for steps in _candidates(search)]
    return tuple(sorted((each for each in alone if each.saves), key=lambda each: each.peak_bytes))


def _remedies(search: Search) -> Iterator[tuple[Steps, Remedy]]:
    """Yield single optimizations that lower the peak, a smaller batch, and pairs if no single one suffices."""
    alone = [(steps, _remedy(search, steps)) for steps in _candidates(search)]
    saving = [(steps, remedy) for steps, remedy in alone if remedy.saves]
    yield from saving
    if any(remedy.fits and not _is_smaller_batch(steps) for steps, remedy in saving):
        return
    keeping = [steps for steps, _ in saving if not _is_smaller_batch(steps)]
    for one, other in combinations(keeping, 2):
        pair = in_order((*one, *other))
        if not conflict(pair) and search.allows(pair):
            yield pair, _remedy(search, pair)


def _candidates(search: Search) -> Iterator[Steps]:
    for each in OPTIMIZATIONS:
        if not each.throughput and not each.unsuited(search.base) and search.allows((each,)):
            yield (each,)
    largest = largest_that_fits(search.base)
    if largest and search.base.batch_size and largest < search.base.batch_size:
        smaller = find(f"batching:{largest}")
        smaller.throughput = False
        yield (smaller,)


def _is_smaller_batch(steps: Steps) -> bool:
    return any(step.id == "batching" for step in steps)


def _remedy(search: Search, steps: Steps) -> Remedy:
    after, before = search.scenarios(steps), search.base.memory
    assert before is not None
    peak = after.expected.memory.peak if after.expected.memory else before.peak
    return Remedy(
        name="+".join(step.name for step in steps),
        title=" + ".join(step.title for step in steps),
        peak_bytes=peak,
        free_bytes=search.base.gpu.memory_bytes - peak,
        fits=peak <= search.base.gpu.memory_bytes,
        saves=peak < _SAVES * before.peak,
        speedup=speedup(search.scenarios(()), after),
    )


def _rank(steps: Steps, remedy: Remedy) -> tuple[bool, bool, float]:
    """Return a sort key of remedies: those that fit by speed, with a smaller batch last; then the others by peak."""
    gain = remedy.speedup.low if remedy.fits else -float(remedy.peak_bytes)
    return not remedy.fits, _is_smaller_batch(steps), -gain


def fitting_first(
    judgements: list[tuple[Optimization, Considered]], fit: MemoryFit, first: Steps, search: Search
) -> list[tuple[Optimization, Considered]]:
    """Return the judged optimizations of a run that does not fit. Only those that make it fit are recommended."""
    by_name = {remedy.name: remedy for remedy in fit.remedies}
    chosen = {step.id: step for step in first}
    result = []
    for optimization, option in judgements:
        step = chosen.get(optimization.id, optimization)
        remedy = by_name.get(step.name)
        if option.objection and step.id not in chosen:
            result.append((optimization, option))
        elif step.id in chosen or (remedy and remedy.fits):
            result.append((step, _recommended(step, remedy, fit, search)))
        else:
            result.append((optimization, replace(option, recommended=False, reason=_too_large(remedy, fit))))
    return result


def _recommended(step: Optimization, remedy: Remedy | None, fit: MemoryFit, search: Search) -> Considered:
    remedy, after = remedy or _remedy(search, (step,)), search.scenarios((step,))
    kind = "makes-it-fit" if remedy.fits else "helps-to-fit"
    reason = (say(kind, _needed(fit), _held(remedy.peak_bytes), _has(fit)),)
    explained = change(search.base, after.expected, after.work)
    return Considered(
        id=step.id, title=step.title, recommended=True, reason=reason, speedup=remedy.speedup, explained=explained
    )


def _too_large(remedy: Remedy | None, fit: MemoryFit) -> Statements:
    peak = remedy.peak_bytes if remedy else fit.needed_bytes
    return (say("does-not-fit", _held(peak), _has(fit)),)


def _needed(fit: MemoryFit) -> Evidence:
    return of_step("needed", "bytes", fit.needed_bytes)


def _held(peak: int) -> Evidence:
    return of_step("held", "bytes", peak)


def _has(fit: MemoryFit) -> Evidence:
    return of_step("memory", "bytes", fit.available_bytes)
