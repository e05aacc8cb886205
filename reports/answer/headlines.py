"""Writes the headline: what runs, what bounds it, and the plan with its gain, in at most 200 characters."""

from collections.abc import Iterator
from functools import cache, partial
from itertools import product

from tracekit.analyzers.core import Interval
from tracekit.analyzers.predict import MOST_QUOTED
from tracekit.analyzers.results import (
    HOST_AND_GAPS,
    LAUNCHING,
    NOT_SIMULATED,
    PROFILER,
    START_UP_ONLY,
    Analysis,
    MemoryFit,
    PlanStep,
)
from tracekit.reports.answer.measured import from_to, measured_gains, of_advice
from tracekit.reports.answer.plans import planned
from tracekit.reports.answer.spoken import spoken_shares, subjects, unrecorded_gpu
from tracekit.reports.words import (
    device,
    duration,
    helpless,
    in_sentence,
    measured,
    percent,
    printable,
    shortened,
    speedup,
    with_article,
)

LONGEST = 200
_DOMINANT = 0.4
_TWO = ((3, 2), (2, 2), (1, 2))
_DETAILS = (((3, 3), *_TWO), _TWO, ((2, 1), (1, 1)), ((1, 1),))
"""Numbers of steps of the plan and of shares of the time that are named, most first; what the time goes to is worth
more than a longer name of the program."""
_REMARKS = (2, 1, 1, 0)
"""Numbers of remarks on a share that are made with these."""
_HOPEFUL = 1.1
"""Smallest expected speed-up for which an uncertain optimization is mentioned."""


def headline(analysis: Analysis) -> str:
    """Return, for example, "GPT-2 decode, batch 1, on a T4: 76 % waiting for the host. CUDA graphs: ..."."""
    short = (text for text in _texts(analysis) if len(text) <= LONGEST)
    return printable(next(short, None) or _shortest(analysis))


def _texts(analysis: Analysis) -> Iterator[str]:
    """Yield the headline with less and less detail. The settings of a capture are given up last, the name of a file
    first."""
    said, captured = list(subjects(analysis)), analysis.source.capture is not None
    groups = [said[:1], said[1:]] if captured else [said]
    details = [
        (subject, number, remarks)
        for group in groups
        for tier, remarks in zip(_DETAILS, _REMARKS, strict=True)
        for subject, number in product(group, tier)
    ]
    state, following = cache(partial(_state, analysis)), cache(partial(_next, analysis))
    for settles, (subject, (steps, shares), remarks) in product((True, False), details):
        parts = f"{subject}: {state(shares, remarks)}.", following(steps, settles)
        yield " ".join(part for part in parts if part)


def _shortest(analysis: Analysis) -> str:
    *_, subject = subjects(analysis)
    return shortened(f"{subject}: {_state(analysis, 1)}.", LONGEST)


def of_fit(fit: MemoryFit, there: str = "") -> str:
    """Return, for example, "does not fit: 56.4 of 16 GB; batch 2 is the largest; it fits with weights in int4".

    `there` names the GPU, if it is not that of the run.
    """
    gpu, least = with_article(there) if there else "", "at least " * fit.at_least
    needed = f"{least}{fit.needed_bytes / 1e9:,.1f} of {fit.available_bytes / 1e9:,.0f} GB"
    parts = [" ".join(part for part in ("does not fit", gpu) if part) + f": {needed}"]
    if fit.largest_batch is not None:
        largest = f"batch {fit.largest_batch:,} is the largest" + " at best" * fit.at_least
        parts.append(largest if fit.largest_batch else "no batch fits")
    others = [remedy for remedy in fit.fitting if not remedy.name.startswith("batching:")]
    if others:
        parts.append(f"it {'may fit' if fit.at_least else 'fits'} with {in_sentence(others[0].title)}")
    elif not fit.fitting:
        parts.append("nothing that tracekit knows makes it fit one GPU")
    return "; ".join(parts)


def main_bound(analysis: Analysis) -> str:
    """Return the bound with most of the time; "mixed": none is large enough."""
    main, share = analysis.bound.ranked()[0]
    return main if share >= _DOMINANT else "mixed"


def _state(analysis: Analysis, most: int, remarks: int = 0) -> str:
    if unrecorded := unrecorded_gpu(analysis):
        return unrecorded
    if analysis.source.device == "cpu":
        return _largest_op(analysis)
    if analysis.memory_fit:
        return of_fit(analysis.memory_fit, analysis.projection.gpu.name if analysis.projection else "")
    once = analysis.one_time_share
    if once >= START_UP_ONLY:
        rest = spoken_shares(analysis, 1)
        return f"mostly start-up, {percent(once)} of the recording: record after warm-up. The rest: {rest}"
    return spoken_shares(analysis, most, remarks)


def _largest_op(analysis: Analysis) -> str:
    if analysis.ops.empty:
        return "no op"
    top = analysis.ops.nlargest(1, "share").iloc[0]
    return f"{percent(top['share'])} of the op time in {shortened(str(top['name']), 60)}"


def _next(analysis: Analysis, named: int, settles: bool) -> str:
    """Return the plan with its gain, or why there is none, as a sentence."""
    if analysis.memory_fit:
        return _once_it_fits(analysis)
    if unrecorded_gpu(analysis) or analysis.one_time_share >= START_UP_ONLY:
        return ""
    for_latency = [step for step in analysis.plan if step.cumulative]
    if for_latency and for_latency[-1].cumulative:
        return _planned(analysis, for_latency, for_latency[-1].cumulative, named, settles)
    if analysis.recommendations:
        first = analysis.recommendations[0]
        needs = f", with {first.condition}" if first.condition else ""
        what = " the throughput" * first.throughput
        return f"{first.title}{needs}: {speedup(first.speedup)}{what}{_measured(analysis, first.id)}."
    if not analysis.considered:
        return ""
    return _perhaps(analysis) or f"{helpless(analysis)}."


def _once_it_fits(analysis: Analysis) -> str:
    """Return what makes a step faster that fits by the first step of the plan, and the time that it then takes."""
    steps = [step for step in planned(analysis) if step.cumulative]
    if analysis.projection or len(steps) < 2:
        return ""
    took, takes = steps[0].latency_us.expected, steps[-1].latency_us
    titles = ", then ".join(in_sentence(step.title) for step in steps[1:])
    spread = f"{duration(takes.low)} to {duration(takes.high)}"
    return f"Then {titles}: {from_to(took, takes.expected, duration)} ({spread})."


def _planned(analysis: Analysis, steps: list[PlanStep], gain: Interval, named: int, settles: bool) -> str:
    first, *others = (in_sentence(step.title) for step in steps[:named])
    titles = [steps[0].title[:1] + first[1:], *others]
    more = f", and {len(steps) - named} more" * (len(steps) > named)
    start = analysis.predicted_from
    gained = speedup(gain)
    if start:
        gained = f"{from_to(start.unprofiled_us, start.unprofiled_us / gain.expected, duration)} ({gained})"
    name = steps[0].name.partition(":")[0]
    with_first = " by the first step alone" * (len(steps) > 1)
    was = _measured(analysis, name)
    text = f"{', then '.join(titles)}{more}: {gained}{was}{with_first if was else ''}."
    wide = gain.high > MOST_QUOTED * gain.low and settles
    return text + (f" Narrow it: {settled_by(analysis, steps[-1])}" if wide else "")


def _perhaps(analysis: Analysis) -> str:
    """Return the optimization with the largest expected speed-up among those that may help but are uncertain."""
    rejected = [each for each in analysis.considered if not each.recommended]
    hopeful = [each for each in rejected if each.speedup and each.speedup.expected >= _HOPEFUL]
    best = max(hopeful, key=lambda each: each.speedup.expected if each.speedup else 0.0, default=None)
    return (
        f"Nothing is sure to help; {in_sentence(best.title)} may ({speedup(best.speedup)})."
        if best and best.speedup
        else ""
    )


def _measured(analysis: Analysis, optimization: str) -> str:
    gain = of_advice(measured_gains(analysis), optimization)
    return f", measured {measured(gain.measured)}" if gain and gain.measured else ""


_MOSTLY = 0.5
_HOST = (HOST_AND_GAPS, PROFILER, NOT_SIMULATED)


def settled_by(analysis: Analysis, last: PlanStep) -> str:
    """Return the command of the measurement that narrows the gain of the plan up to its step `last` most.

    If launches are saved, the host is unknown: how long a step takes without the profiler or, of a modelled run, how
    fast the GPU's machine is. If time of kernels is saved, their shapes are unknown if the trace has none. Otherwise it
    is what the work takes after the change, which a trial tells.
    """
    timed = analysis.predicted_from.timed if analysis.predicted_from else "unprofiled"
    waits, there = _saves_waiting(last), f"on {with_article(device(analysis.source))}"
    if timed != "unprofiled" and waits and _waits_for_launches(analysis):
        return f"tracekit calibrate {there}" if timed == "modelled" else "tracekit analyze TRACE --latency-ms MS"
    if timed == "profiled" and not waits and (analysis.problems["code"] == "no-shapes").any():
        return "record with record_shapes=True"
    if analysis.source.capture is None:
        return "tracekit run SCRIPT" if _runs_torch(analysis) else "tracekit compare TRACE AFTER"
    return f"tracekit verify RUN {there}" if timed == "modelled" else "tracekit verify RUN"


def _runs_torch(analysis: Analysis) -> bool:
    """Return whether the program is one in Python that calls torch, as far as the trace tells."""
    source = analysis.source
    is_binary = bool(source.program) and not source.program.endswith(".py")
    return not is_binary and (source.format != "nsys" or analysis.coverage.op > 0)


def _saves_waiting(last: PlanStep) -> bool:
    """Return whether most of the time that is saved by the plan up to its step `last` is the host's."""
    times = last.explained.by_op_class if last.explained else ()
    saved = {each.op_class: max(each.before_ns - each.after_ns, 0) for each in times}
    return sum(saved.get(name, 0) for name in _HOST) >= _MOSTLY * max(sum(saved.values()), 1)


def _waits_for_launches(analysis: Analysis) -> bool:
    causes = analysis.idle_causes
    return bool(causes["share"][causes["cause"].isin(LAUNCHING).to_numpy()].sum() >= _MOSTLY)
