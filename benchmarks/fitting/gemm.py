"""Fits GEMMs: [gemm.*] of analyzers/cost/time/constants.toml, and what each GPU's units sustain,
`sustained` in analyzers/cost/hardware/calibration.toml.

    python -m benchmarks fitting.gemm [--shared DIRECTORY] [--dry-run]

bf16 on A100, H100, H200 and L40S (aiconfigurator) and our H200; fp32 on T4, V100, A100, L4 and H100 (NeuSight) and our
H200; of fp8 and int8 only what the units sustain. Loss: the mean |log(modelled / measured)|; each GPU, source and class
of rows weighs the same. Constants and sustained rates are fitted in turn.

Of GEMMs that are not plain tiles, one row is fitted to bf16 on A100, H100, H200 and L40S (aiconfigurator) and to all
types on our H200; few rows, unaligned matrices, packed int4 weights and fp8 with a scale a row to our H200.
"""

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
from msgspec.structs import fields, replace
from numpy.typing import NDArray

from benchmarks.fitting.constants import Asked, Constants, arguments, fit_and_write, fitted, own, section_of, write
from benchmarks.measurements import own as measured_here
from benchmarks.measurements import public
from benchmarks.measurements.own import Row
from tracekit.analyzers.cost import GPU, Precision, Product
from tracekit.analyzers.cost.hardware.catalogue import CALIBRATION
from tracekit.analyzers.cost.time import estimate
from tracekit.analyzers.cost.time.gemm import Products, gemm_seconds, kind, tiled, units_of

ROUNDS = 3
_STANDS_FOR = {"bf16": "fp16", "tf32": "fp16"}
"""Precisions that sustain the same fraction of the peak as another one."""
_RATED = ("bf16", "int8", "fp32")
"""GPUs that the constants are fitted to. For the others, only the sustained rates are fitted."""

_FEW_ROWS = 64
_WIDE = 4096
"""Number of columns from which an fp8 product hides the quantization of its input, which aiconfigurator includes."""

_SECTIONS = {
    "one row": "gemm.one-row",
    "few rows": "gemm.few",
    "unaligned": "gemm.unaligned",
    "int4": "gemm.int4",
    "rowwise": "gemm.rowwise",
}
"""Sections of constants.toml for GEMMs that are not plain tiles."""
Peaks = dict[tuple[str, str], float]
"""Sustained fraction of the peak, by GPU and precision."""


@dataclass(frozen=True)
class Batch:
    """Rows of one GPU, precision and class, as arrays."""

    gpu: GPU
    precision: Precision
    units: str
    products: Products
    seconds: NDArray[np.float64]

    @property
    def peak(self) -> tuple[str, str]:
        return self.gpu.id, _STANDS_FOR.get(self.precision, self.precision)


def main() -> None:
    asked = arguments(__doc__)
    batches = batched(measured(asked))
    peaks = shipped_peaks(batches)
    for units in ("tensor", "simt"):
        own_units = [one for one in batches if one.units == units]
        constants, peaks = fit(units, own_units, peaks)
        error = mean_error(own_units, section_of(f"gemm.{units}"), peaks)
        print(f"{units:<8}{error:6.1%}  {constants}", flush=True)
        if asked.write:
            write(estimate.CONSTANTS, f"gemm.{units}", {**constants, **provenance(own_units, error)})
        if units == "tensor":
            fit_tf32([one for one in batches if one.units == "tf32"], peaks, asked)
    print({f"{gpu} {precision}": value for (gpu, precision), value in peaks.items()})
    if asked.write:
        write_peaks(peaks)
    fit_others(asked)


def fit_tf32(batches: list[Batch], peaks: Peaks, asked: Asked) -> None:
    """Fit the start of TF32 GEMMs. The other constants are those of all tensor units."""
    section = section_of("gemm.tf32")
    best = fitted(lambda tried: _loss(batches, {**section, **tried}, peaks), own(section))
    error = mean_error(batches, {**section, **best}, peaks)
    print(f"tf32    {error:6.1%}  {best}", flush=True)
    if asked.write:
        write(estimate.CONSTANTS, "gemm.tf32", {**best, **provenance(batches, error)})


def provenance(batches: list[Batch], error: float) -> dict[str, float | str]:
    gpus = ", ".join(sorted({one.gpu.id for one in batches}))
    rows = sum(len(one.seconds) for one in batches)
    return {"error": round(error, 3), "source": f"{rows} products of {gpus}"}


def measured(asked: Asked) -> Iterator[Row]:
    """Return the GEMMs of more than one row on aligned matrices, without packed weights."""
    rows = measured_here.rows()
    if asked.shared.is_dir():
        files = public.folder(asked.shared)
        rows = chain(rows, public.products(files, 250, 1), public.fp32(files, 250, 1))
    for row in rows:
        shape = row.cost.work
        quantizes = row.source == "aiconfigurator" and row.cost.precision == "fp8"
        if row.gpu.is_estimated or row.cost.family != "gemm" or row.label in measured_here.NAIVE:
            continue
        if isinstance(shape, Product):
            wide = not quantizes or shape.n >= _WIDE
            by_row = shape.row_scales and row.cost.precision == "fp8"
            if wide and not by_row and kind(row.cost, shape, row.gpu) == "tiled":
                yield row


def batched(rows: Iterable[Row]) -> list[Batch]:
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        few = isinstance(row.cost.work, Product) and row.cost.work.m <= _FEW_ROWS
        label = row.label if row.source == "neusight" else few
        groups[row.source, row.gpu.id, row.cost.precision, label].append(row)
    return [_batch(group) for key, group in groups.items() if key[2:] != ("fp8", True)]


def _batch(rows: list[Row]) -> Batch:
    first = rows[0]
    each = [tiled(row.cost, row.cost.work, row.gpu) for row in rows if isinstance(row.cost.work, Product)]
    arrays = (np.array([getattr(one, field.name) for one in each], dtype=float) for field in fields(Products))
    seconds = np.array([row.nanoseconds for row in rows]) / 1e9
    units = "tf32" if first.cost.precision == "tf32" else units_of(first.cost, first.gpu)
    return Batch(first.gpu, first.cost.precision, units, Products(*arrays), seconds)


def fit(units: str, batches: list[Batch], peaks: Peaks) -> tuple[Constants, Peaks]:
    """Fit the section's own constants and the sustained rates in turn. The constants stay in place for this process."""
    section = section_of(f"gemm.{units}")
    rated = [one for one in batches if one.precision in _RATED]
    for _ in range(ROUNDS):
        peaks = fit_peaks(batches, section, peaks)
        section.update(fitted(lambda tried: _loss(rated, {**section, **tried}, peaks), own(section), sweeps=4))  # noqa: B023
    return own(section), fit_peaks(batches, section, peaks)


def fit_peaks(batches: list[Batch], constants: Mapping[str, float], peaks: Peaks) -> Peaks:
    best_peaks = dict(peaks)
    for key in {one.peak for one in batches}:
        mine = [one for one in batches if one.peak == key]
        best = fitted(lambda tried: _loss(mine, constants, {key: min(1.0, tried["peak"])}), {"peak": peaks[key]})  # noqa: B023
        best_peaks[key] = round(min(1.0, best["peak"]), 2)
    return best_peaks


def shipped_peaks(batches: list[Batch]) -> Peaks:
    return {one.peak: one.gpu.sustained_flops(one.precision) / one.gpu.peak_flops(one.precision) for one in batches}


def ratios(batch: Batch, constants: Mapping[str, float], peaks: Peaks) -> NDArray[np.float64]:
    """Return modelled over measured times."""
    units = estimate.machine(batch.gpu, batch.precision)
    units = replace(units, flops=batch.gpu.peak_flops(batch.precision) * peaks[batch.peak])
    return gemm_seconds(batch.products, units, constants) / batch.seconds


def mean_error(batches: list[Batch], constants: Mapping[str, float], peaks: Peaks) -> float:
    return float(np.mean([np.abs(ratios(one, constants, peaks) - 1).mean() for one in batches]))


def _loss(batches: list[Batch], constants: Mapping[str, float], peaks: Peaks) -> float:
    return float(np.mean([np.abs(np.log(ratios(one, constants, peaks))).mean() for one in batches]))


def write_peaks(peaks: Peaks) -> None:
    """Write `sustained` of the GPUs that have data. Other precisions stay."""
    table = tomllib.loads(CALIBRATION.read_text(encoding="utf-8"))
    for gpu in {gpu for gpu, _ in peaks}:
        sustained = {**table[gpu]["sustained"], **{name: value for (of, name), value in peaks.items() if of == gpu}}
        write(CALIBRATION, gpu, {"sustained": sustained})


def fit_others(asked: Asked) -> None:
    """Fit the GEMMs that are not plain tiles."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in others(asked):
        if isinstance(row.cost.work, Product):
            groups[_kind_of(row, row.cost.work)].append(row)
    for name, section in _SECTIONS.items():
        fit_and_write(section, groups[name], lambda row: (row.source, row.gpu.id), writes=asked.write)


def _kind_of(row: Row, shape: Product) -> str:
    few = shape.m <= _FEW_ROWS
    return "rowwise" if few and shape.row_scales and row.cost.precision == "fp8" else kind(row.cost, shape, row.gpu)


def others(asked: Asked) -> Iterator[Row]:
    for row in measured_here.rows():
        if row.cost.family == "gemm" and row.cost.precision != "int8":
            yield row
    if asked.shared.is_dir():
        yield from (row for row in public.products(public.folder(asked.shared), 250, 1) if row.cost.precision == "bf16")


if __name__ == "__main__":
    main()
