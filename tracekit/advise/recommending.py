"""Adds recommendations, a plan and all considered optimizations to an analysis."""

from itertools import takewhile

from msgspec.structs import replace

from tracekit.advise.catalogue import OPTIMIZATIONS
from tracekit.advise.outcomes import start_of
from tracekit.advise.predicted import Advice, advise, refused
from tracekit.analyzers.predict import Baseline, fusion_plan
from tracekit.analyzers.results import START_UP_ONLY, Analysis, Considered, MemoryFit, PredictedBaseline, Verification
from tracekit.analyzers.trace import problems
from tracekit.reports.words import duration


def recommend(analysis: Analysis, base: Baseline | None) -> Analysis:
    """Return the analysis with recommendations, the plan, and everything considered.

    The recommendations begin with the steps of the plan. The others follow by expected gain: first those for latency,
    then those for throughput, and last those with a requirement that the run does not meet.
    """
    if base is None:
        return replace(analysis, considered=_nothing_to_predict(analysis))
    start = start_of(base)
    if analysis.one_time_share >= START_UP_ONLY and len(analysis.timeline.steps) < _FEW:
        return replace(
            analysis,
            bound=analysis.bound.with_idle(start.idle_share),
            considered=_all_refused(_COLD),
            predicted_from=start,
        )
    advice = advise(base)
    return replace(
        analysis,
        bound=analysis.bound.with_idle(start.idle_share),
        recommendations=advice.recommendations,
        considered=advice.considered,
        plan=advice.plan,
        fusion_plan=fusion_plan(base),
        predicted_work=advice.predicted_work,
        predicted_from=start,
        memory_fit=advice.memory_fit,
        problems=problems.concat(
            analysis.problems,
            problems.table([*_unexplained(start), *fit_problems(advice.memory_fit), *_bugs(advice)]),
        ),
    )


def _unexplained(start: PredictedBaseline) -> list[problems.Problem]:
    """Return the problem that the simulation of the unmodified step does not reproduce it; empty if it does."""
    if start.failed is None:
        return []
    detail = f"{duration(start.failed.simulated_us)} instead of {duration(start.failed.stated_us)}"
    return [problems.problem("step-not-reproduced", 1, detail)]


def _bugs(advice: Advice) -> list[problems.Problem]:
    """Return the problem that optimizations could not be judged; empty if all of them were."""
    detail = "; ".join(f"{name} ({what})" for name, what in advice.failed.items())
    return [problems.problem("advice-failed", len(advice.failed), detail)]


def fitted(analysis: Analysis, base: Baseline) -> Analysis:
    """Return the analysis with advice that makes the run fit the GPU of `base`, to which it is projected."""
    advice = advise(base)
    return replace(
        analysis,
        recommendations=advice.recommendations,
        considered=advice.considered,
        plan=advice.plan,
        predicted_work=advice.predicted_work,
        memory_fit=advice.memory_fit,
    )


def fit_problems(fit: MemoryFit | None) -> list[problems.Problem]:
    """Return the problem that the run does not fit in the GPU's memory; empty if it fits."""
    if fit is None:
        return []
    needed = "at least " * fit.at_least + f"{fit.needed_bytes / 1e9:,.1f} GB"
    detail = f"it needs {needed}, and the {fit.gpu} has {fit.available_bytes / 1e9:,.0f} GB"
    return [problems.problem("does-not-fit", detail=detail)]


_FEW = 2
_COLD = "Most of the recording is start-up, so that no step tells what recurs: record after warm-up."


def _nothing_to_predict(analysis: Analysis) -> tuple[Considered, ...]:
    return _all_refused(why_nothing(analysis))


def _all_refused(why: str) -> tuple[Considered, ...]:
    return tuple(refused(optimization, why) for optimization in OPTIMIZATIONS)


RECORD = "Record it on a GPU, or model it for one (--gpu)."
"""What to do with a run from which nothing can be predicted."""


def why_nothing(analysis: Analysis) -> str:
    """Return why a trace has no baseline to predict from."""
    if analysis.source.device == "cpu":
        return "The trace has no GPU work to predict from."
    return "No step that the trace marks holds GPU work."


def reordered_by_measurements(analysis: Analysis) -> Analysis:
    """Return the analysis with recommendations that failed, or gained nothing, behind the others.

    The plan ends before the first of them, because the gains of later steps were predicted on top of it.
    """
    if analysis.verified is None:
        return analysis
    failed = _failed(analysis.verified)
    return replace(
        analysis,
        recommendations=tuple(sorted(analysis.recommendations, key=lambda advice: advice.id in failed)),
        plan=tuple(takewhile(lambda step: _kind(step.name) not in failed, analysis.plan)),
    )


def _failed(verified: Verification) -> set[str]:
    """Return the optimizations without a variant that was faster when it was applied alone."""
    alone = [each for each in verified.results if "+" not in each.id]
    helped = {_kind(each.id) for each in alone if each.measured is not None and each.measured.expected > 1}
    return {_kind(each.id) for each in alone} - helped


def _kind(name: str) -> str:
    """Return the id of an optimization without its argument."""
    return name.partition(":")[0]
