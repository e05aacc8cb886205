"""Measured speed-ups of optimizations, as the page shows them beside the predicted ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.values import Recommendation
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.verification import Difference, Verification, Verified
from tracekit.reports.names import printable
from tracekit.reports.numbers import duration, percent, quantity, significant
from tracekit.reports.verification_report import why_not


@dataclass(frozen=True)
class MeasuredGain:
    title: str
    """The title, with the id where it holds an argument."""
    predicted: Interval | None
    measured: Interval | None
    inside: Literal["yes", "less", "more", ""]
    """Whether it lies in the predicted interval; "": one of them is not there."""
    step: str
    memory: str
    difference: str
    error: str


def measured_gains(analysis: Analysis) -> dict[str, MeasuredGain]:
    """Gains by the names of the optimizations applied: the largest first, failures last."""
    if analysis.verified is None:
        return {}
    ranked = sorted(analysis.verified.results, key=lambda found: -found.measured.expected if found.measured else 0.0)
    return {printable(found.id): _gain(found, analysis.verified) for found in ranked}


def of_advice(gains: Mapping[str, MeasuredGain], optimization: str) -> MeasuredGain | None:
    """The gain of one optimization by itself, with any argument."""
    return next((gain for name, gain in gains.items() if name.split(":")[0] == optimization), None)


def of_steps(gains: Mapping[str, MeasuredGain], names: Sequence[str]) -> MeasuredGain | None:
    """The gain of several optimizations together, named in any order."""
    return next((gain for name, gain in gains.items() if set(name.split("+")) == set(names)), None)


def first_to_try(analysis: Analysis) -> Recommendation:
    """The best of the recommendations that was not found to fail, or to give nothing."""
    gains, advised = measured_gains(analysis), analysis.recommendations
    return next((advice for advice in advised if not _disappoints(of_advice(gains, advice.id))), advised[0])


def _disappoints(gain: MeasuredGain | None) -> bool:
    return gain is not None and (bool(gain.error) or (gain.measured is not None and gain.measured.expected <= 1))


def _gain(found: Verified, of: Verification) -> MeasuredGain:
    before, after = found.before, found.after
    return MeasuredGain(
        title=printable(f"{found.title} ({found.id})" if ":" in found.id else found.title),
        predicted=found.predicted,
        measured=found.measured,
        inside=_inside(found),
        step=f"{duration(before.median_us)} → {duration(after.median_us)}" if before and after else "",
        memory=_memory(of.peak_memory_bytes, found.peak_memory_bytes),
        difference=_difference(found.difference),
        error=printable(why_not(found)),
    )


def _inside(found: Verified) -> Literal["yes", "less", "more", ""]:
    if found.predicted is None or found.measured is None:
        return ""
    if found.inside:
        return "yes"
    return "less" if found.measured.expected < found.predicted.low else "more"


def _memory(before: int, after: int) -> str:
    return f"{quantity(before, 'B')} → {quantity(after, 'B')}" if before and after else ""


def _difference(found: Difference | None) -> str:
    if found is None:
        return ""
    apart = f"outputs differ by {significant(100 * found.relative)} %" if found.relative >= 1e-6 else "same outputs"
    return apart if found.agreement is None else f"{apart}, {percent(found.agreement)} of the choices agree"
