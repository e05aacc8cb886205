"""Reorders advice by the measurements of its optimizations in the run."""

from dataclasses import replace
from itertools import takewhile

from tracekit.analyzers.results import Analysis
from tracekit.analyzers.verification import Verification


def after_measuring(analysis: Analysis) -> Analysis:
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
