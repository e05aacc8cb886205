"""Corrects predictions by the ratio of measured to predicted speed-up in earlier measurements on this machine."""

import math
import os
import statistics
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tracekit.advise.gains import pays
from tracekit.analyzers.core import Interval, TracekitError
from tracekit.analyzers.results import Analysis, Considered, Recommendation
from tracekit.run import configuration_folder, machine_key


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction and the speed-up measured afterwards."""

    verified_at: str
    """Date and time in UTC, ISO 8601."""
    gpu: str
    """An id of gpus.toml."""
    model: str
    workload: str
    batch_size: int
    seq_len: int
    dtype: str
    applied: str
    """Ids of optimizations, joined with "+" as for `predict --apply`."""
    predicted: tuple[float, float, float]
    """Speed-up: low, expected, high."""
    measured: float
    """Speed-up."""
    versions: dict[str, str] = {}


def path_of(gpu: str) -> Path:
    return configuration_folder() / "history" / f"{machine_key(gpu)}.jsonl"


def add(measurement: Measurement) -> Path:
    """Append a measurement to the history of this machine with its GPU, and return the file's path."""
    path = path_of(measurement.gpu)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(handle, msgspec.json.encode(measurement) + b"\n")
    finally:
        os.close(handle)
    return path


def read(gpu: str) -> list[Measurement]:
    """Return the history of this machine with a GPU, oldest first. Raises TracekitError for an invalid line."""
    path = path_of(gpu)
    if not path.is_file():
        return []
    try:
        return [msgspec.json.decode(line, type=Measurement) for line in path.read_bytes().splitlines() if line.strip()]
    except msgspec.DecodeError as error:
        raise TracekitError(
            f"{path} cannot be read.", f"{error}.", "Remove the line or the file; predictions are then made without it."
        ) from error


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
    return correction(read(gpu), applied, workload)


def corrected(analysis: Analysis) -> Analysis:
    """Return the analysis with its speed-ups corrected by the history of its GPU on this machine.

    Recommendations whose corrected speed-up is no longer worthwhile are removed.
    """
    source = analysis.source
    records = read(source.gpu.id) if source.gpu and source.capture and analysis.considered else []
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
