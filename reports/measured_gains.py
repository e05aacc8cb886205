"""Measured speed-ups of optimizations, as the page shows them beside the predicted ones."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.verification import Difference, Verification, Verified
from tracekit.reports.names import printable
from tracekit.reports.numbers import duration, percent, quantity, significant
from tracekit.reports.verification_report import why_not


class MeasuredGain(msgspec.Struct, frozen=True):
    title: str
    """The title, followed by the id if that has an argument."""
    predicted: Interval | None
    measured: Interval | None
    inside: Literal["yes", "less", "more", ""]
    """Whether the measured speed-up lies in the predicted interval; "" if one of them is missing."""
    step: str
    memory: str
    difference: str
    error: str


def measured_gains(analysis: Analysis) -> dict[str, MeasuredGain]:
    """Return the measured gains by optimization id: the largest first, failures last; {} if nothing was verified."""
    if analysis.verified is None:
        return {}
    ranked = sorted(analysis.verified.results, key=lambda each: -each.measured.expected if each.measured else 0.0)
    return {printable(each.id): _gain(each, analysis.verified) for each in ranked}


def of_advice(gains: Mapping[str, MeasuredGain], optimization: str) -> MeasuredGain | None:
    """Return the gain of one optimization without others, with any argument; None if it was not measured."""
    return next((gain for name, gain in gains.items() if name.split(":")[0] == optimization), None)


def of_steps(gains: Mapping[str, MeasuredGain], names: Sequence[str]) -> MeasuredGain | None:
    """Return the gain of several optimizations applied together, in any order; None if it was not measured."""
    return next((gain for name, gain in gains.items() if set(name.split("+")) == set(names)), None)


def _gain(result: Verified, of: Verification) -> MeasuredGain:
    before, after = result.before, result.after
    return MeasuredGain(
        title=printable(f"{result.title} ({result.id})" if ":" in result.id else result.title),
        predicted=result.predicted,
        measured=result.measured,
        inside=_inside(result),
        step=f"{duration(before.median_us)} → {duration(after.median_us)}" if before and after else "",
        memory=_memory(of.peak_memory_bytes, result.peak_memory_bytes),
        difference=_difference(result.difference),
        error=printable(why_not(result)),
    )


def _inside(result: Verified) -> Literal["yes", "less", "more", ""]:
    if result.predicted is None or result.measured is None:
        return ""
    if result.inside:
        return "yes"
    return "less" if result.measured.expected < result.predicted.low else "more"


def _memory(before: int, after: int) -> str:
    return f"{quantity(before, 'B')} → {quantity(after, 'B')}" if before and after else ""


def _difference(difference: Difference | None) -> str:
    if difference is None:
        return ""
    percentage = significant(100 * difference.relative)
    apart = f"outputs differ by {percentage} %" if difference.relative >= 1e-6 else "same outputs"
    return apart if difference.agreement is None else f"{apart}, {percent(difference.agreement)} of the choices agree"
