"""Judges the kernel time model on what it was not fitted to, and writes held_out.csv and halves.csv (benchmarks/data).

    python -m benchmarks fitting.held_out [--shared DIRECTORY] [--dry-run]

Each GPU with public data in turn: the constants are fitted again without any of its rows, and its rows are predicted.
`calibrated` keeps what the GPU sustains (its product and copy rates, as `tracekit calibrate` measures them in a
minute); `data sheet` estimates both from its power limit and bandwidth (analyzers/cost/hardware/data_sheet.py), so that
nothing of the GPU is known but its data sheet.

Our own kernels that move memory, and convolutions: each section of constants.toml is fitted on half of its op calls, in
pairs as they were measured, and on all public rows; the other half is predicted, and the halves change places.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy.kernels import errors
from benchmarks.fitting import attention, constants, gemm, memory
from benchmarks.fitting.constants import Asked, arguments
from benchmarks.measurements import own, public
from benchmarks.measurements.own import Row
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.cost.hardware.catalogue import measured
from tracekit.analyzers.cost.hardware.data_sheet import estimated_by_data_sheet
from tracekit.analyzers.cost.time import estimate
from tracekit.analyzers.cost.time.attention import backend
from tracekit.analyzers.cost.time.gemm import units_of
from tracekit.analyzers.cost.time.memory_bound import kind

FILE = Path(__file__).parents[1] / "data" / "held_out.csv"
HALVES = FILE.with_name("halves.csv")
SAMPLE = 300
Error = tuple[str, str, int, float, float]
"""Family, GPU, number of rows, error with known sustained rates, error without."""


def main() -> None:
    asked = arguments(__doc__)
    _gpus(asked)
    _halves(asked)


def _gpus(asked: Asked) -> None:
    tested = [
        row
        for row in public.rows(asked.shared, SAMPLE, 0)
        if (row.source, row.family) != ("aiconfigurator", "gemm fp8") and not row.gpu.is_estimated
    ]
    gpus = {row.gpu.id: row.gpu for row in tested}
    rows = [error for gpu in gpus.values() for error in without(gpu, tested, asked)]
    for family, gpu_id, count, calibrated, sheet in rows:
        print(f"{family:<20}{gpu_id:<16}{count:>5}{calibrated:>8.1%}{sheet:>8.1%}")
    if asked.write:
        with FILE.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(("family", "gpu", "rows", "calibrated", "data_sheet"))
            out.writerows((*row[:3], *(round(error, 4) for error in row[3:])) for row in rows)


def _halves(asked: Asked) -> None:
    of_family: dict[str, list[float]] = defaultdict(list)
    for path, rows in sections(asked).items():
        for tested, error in judged(path, rows):
            of_family[tested.family].append(error)
    means = {family: float(np.mean(every)) for family, every in sorted(of_family.items())}
    for family, mean in means.items():
        print(f"{family:<26}{len(of_family[family]):>5}{mean:>8.1%}")
    if asked.write:
        with HALVES.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(("family", "error"))
            out.writerows((family, round(mean, 4)) for family, mean in means.items())


def sections(asked: Asked) -> dict[str, list[Row]]:
    """Return the rows of each section, including public ones."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in memory.measured(asked):
        groups[f"memory.{kind(row.cost)}"].append(row)
    groups["convolution"] = [row for row in own.rows() if row.cost.family == "convolution"]
    return groups


def judged(path: str, rows: Sequence[Row]) -> Iterator[tuple[Row, float]]:
    """Yield each of our own rows with its error. The section's constants are restored afterwards."""
    mine = [row for row in rows if row.source == "own"]
    public = [row for row in rows if row.source != "own"]
    shipped = constants.own(constants.section_of(path))
    for half in (0, 1):
        known = public + [row for number, row in enumerate(mine) if number // 2 % 2 != half]
        tested = [row for number, row in enumerate(mine) if number // 2 % 2 == half]
        if known and tested:
            constants.fit(path, known, lambda row: row.gpu.id, memory.GIVEN)
            estimate.estimate_ns.cache_clear()
            yield from zip(tested, errors(tested), strict=True)
        constants.section_of(path).update(shipped)


def without(gpu: GPU, tested: Sequence[Row], asked: Asked) -> list[Error]:
    """Return the errors of each family on this GPU, with constants fitted to the other GPUs."""
    estimate.constants.cache_clear()
    mine = [row for row in tested if row.gpu.id == gpu.id]
    _fit_products(gpu, mine, asked)
    _fit_sections("attention", gpu, mine, asked)
    _fit_sections("memory", gpu, mine, asked)
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in mine:
        groups[row.family].append(row)
    sheet = estimated_by_data_sheet(gpu, [other for other in measured() if other.id != gpu.id], _rated(tested))
    return [
        (family, gpu.id, len(rows), _error(rows, gpu), _error(rows, sheet)) for family, rows in sorted(groups.items())
    ]


def _rated(tested: Sequence[Row]) -> set[tuple[str, str]]:
    """Return the GPU and precision of each measured product; fp16 stands for bf16."""
    products = [row for row in tested if row.cost.family == "gemm"]
    return {(row.gpu.id, "fp32" if row.cost.precision == "fp32" else "fp16") for row in products}


def _fit_products(gpu: GPU, rows: Sequence[Row], asked: Asked) -> None:
    units = {units_of(row.cost, gpu) for row in rows if row.cost.family == "gemm"}
    batches = [one for one in gemm.batched(gemm.measured(asked)) if one.gpu.id != gpu.id]
    for name in units:
        mine = [one for one in batches if one.units == name]
        fitted, _ = gemm.fit(name, mine, gemm.shipped_peaks(mine))
        estimate.constants()["gemm"][name].update(fitted)


def _fit_sections(name: str, gpu: GPU, rows: Sequence[Row], asked: Asked) -> None:
    """Fit the sections of constants.toml under `name` that this GPU's rows need."""
    source = attention if name == "attention" else memory
    others = [row for row in source.measured(asked) if row.gpu.id != gpu.id]
    needed = {_section(row) for row in rows}
    for path in sorted(path for path in needed if path.startswith(f"{name}.")):
        constants.fit(path, [row for row in others if _section(row) == path], _class, _given(path))


def _section(row: Row) -> str:
    if row.cost.family == "attention":
        return f"attention.{backend(row.cost, row.gpu)}"
    return "gemm" if row.cost.family == "gemm" else f"memory.{kind(row.cost)}"


def _given(path: str) -> tuple[str, ...]:
    family, _, name = path.partition(".")
    return attention.GIVEN.get(name, ()) if family == "attention" else memory.GIVEN


def _class(row: Row) -> object:
    return attention.kind(row) if row.cost.family == "attention" else row.gpu.id


def _error(rows: Sequence[Row], gpu: GPU) -> float:
    times = [max(estimate.model_seconds(row.cost, gpu), estimate.roofline_seconds(row.cost, gpu)) for row in rows]
    return float(np.mean([abs(time * 1e9 / row.nanoseconds - 1) for time, row in zip(times, rows, strict=True)]))


if __name__ == "__main__":
    main()
