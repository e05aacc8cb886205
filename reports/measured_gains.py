"""What was measured of optimizations, as the page shows it beside what was predicted."""

from collections.abc import Mapping
from dataclasses import dataclass

from analyzers.interval import Interval
from analyzers.results import Analysis
from analyzers.verified import Difference, Verification, Verified
from reports.names import printable
from reports.numbers import duration, percent, quantity, significant


@dataclass(frozen=True)
class MeasuredGain:
    title: str
    predicted: Interval | None
    measured: Interval | None
    inside: bool | None
    """Whether it lies in the predicted interval; None: one of them is not there."""
    step: str
    memory: str
    difference: str
    error: str


def measured_gains(analysis: Analysis) -> dict[str, MeasuredGain]:
    """By the names of the optimizations applied; empty where nothing was measured."""
    if analysis.verified is None:
        return {}
    return {printable(found.id): _gain(found, analysis.verified) for found in analysis.verified.results}


def of_advice(gains: Mapping[str, MeasuredGain], optimization: str) -> MeasuredGain | None:
    """That of one optimization by itself, with whatever argument."""
    return next((gain for name, gain in gains.items() if name.split(":")[0] == optimization), None)


def _gain(found: Verified, of: Verification) -> MeasuredGain:
    before, after = found.before, found.after
    return MeasuredGain(
        title=printable(found.title),
        predicted=found.predicted,
        measured=found.measured,
        inside=found.inside,
        step=f"{duration(before.median_us)} → {duration(after.median_us)}" if before and after else "",
        memory=_memory(of.peak_memory_bytes, found.peak_memory_bytes),
        difference=_difference(found.difference),
        error=printable(found.error),
    )


def _memory(before: int, after: int) -> str:
    return f"{quantity(before, 'B')} → {quantity(after, 'B')}" if before and after else ""


def _difference(found: Difference | None) -> str:
    if found is None:
        return ""
    apart = f"outputs differ by {significant(100 * found.relative)} %" if found.relative >= 1e-6 else "same outputs"
    return apart if found.agreement is None else f"{apart}, {percent(found.agreement)} of the choices agree"
