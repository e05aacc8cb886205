"""Corrects predictions by the ratio of measured to predicted speed-up in earlier measurements on this machine."""

import math
import statistics
from dataclasses import replace

import msgspec

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.values import Considered, Recommendation
from tracekit.analyzers.results import Analysis
from tracekit.calibration import measured_predictions
from tracekit.calibration.measured_predictions import Measurement
from tracekit.planning.search import pays

MOST = 1.5
"""A prediction is changed by at most this factor, or its inverse."""
PRIOR = 2
"""Weight of the uncorrected prediction, in measurements."""


class Correction(msgspec.Struct, frozen=True):
    factor: float
    """Multiplies the speed-up and both ends of its interval."""
    measurements: int
    ratio: float
    """Geometric mean of measured over predicted speed-up."""

    def apply(self, speedup: Interval) -> Interval:
        """Return the corrected speed-up."""
        return Interval(speedup.low * self.factor, speedup.expected * self.factor, speedup.high * self.factor)

    def __str__(self) -> str:
        often = "once" if self.measurements == 1 else f"{self.measurements} times"
        return (
            f"Corrected by {self.factor:.2f}: measured {often} on this machine, it gave {self.ratio:.2f} times what "
            "was predicted."
        )


def correction(records: list[Measurement], applied: str, workload: str) -> Correction | None:
    """Return the correction from the latest measurement of each run with this workload; None without measurements.

    The mean of the logarithms of n ratios is multiplied by n / (n + PRIOR), and limited to ±log(MOST).
    """
    latest = {
        (each.model, each.batch_size, each.seq_len, each.dtype): math.log(each.measured / each.predicted[1])
        for each in records
        if each.applied == applied and each.workload == workload
    }
    if not latest:
        return None
    count, mean = len(latest), statistics.fmean(latest.values())
    shrunk = mean * count / (count + PRIOR)
    bound = math.log(MOST)
    return Correction(math.exp(min(max(shrunk, -bound), bound)), count, math.exp(mean))


def here(gpu: str, applied: str, workload: str) -> Correction | None:
    """Return the correction from the history of this machine with `gpu` (an id of gpus.toml); None without history."""
    return correction(measured_predictions.read(gpu), applied, workload)


def corrected(analysis: Analysis) -> Analysis:
    """Return the analysis with its speed-ups corrected by the history of its GPU on this machine.

    Recommendations whose corrected speed-up is no longer worthwhile are removed.
    """
    source = analysis.source
    records = measured_predictions.read(source.gpu.id) if source.gpu and source.capture and analysis.considered else []
    if not records or source.capture is None:
        return analysis
    every = {each.id: correction(records, each.id, source.capture.workload) for each in analysis.considered}
    known = {name: each for name, each in every.items() if each}
    if not known:
        return analysis
    recommended = [_recommendation(each, known) for each in analysis.recommendations]
    kept = [each for each in recommended if pays(each.speedup)]
    return replace(
        analysis,
        recommendations=tuple(kept),
        considered=tuple(_considered(each, known) for each in analysis.considered),
    )


def _recommendation(each: Recommendation, known: dict[str, Correction]) -> Recommendation:
    if each.id not in known:
        return each
    change = known[each.id]
    return replace(each, speedup=change.apply(each.speedup), caveats=(*each.caveats, str(change)))


def _considered(each: Considered, known: dict[str, Correction]) -> Considered:
    if each.id not in known or each.speedup is None:
        return each
    change = known[each.id]
    speedup = change.apply(each.speedup)
    still = each.recommended and pays(speedup)
    return replace(each, speedup=speedup, recommended=still, notes=each.notes if still else (*each.notes, str(change)))
