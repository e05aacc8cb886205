"""Compares modelled with measured kernel times: public data of nine GPUs, our own of an H200, and whole traces."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from measurements import own, public
from measurements.row import Row

from accuracy.chapter import Chapter, Target, at_most, percent, seen, table
from accuracy.kernel_misses import worst
from accuracy.kernel_traces import steps, written
from tracekit.analyzers.cost import estimate_ns

_DATA = Path(__file__).parents[1] / "data"
_SAMPLE, _SEED = 400, 0
"""Seed of a sample other than the one to which the constants were fitted."""
_KNOWN, _HELD_OUT = 0.10, 0.15
Held = dict[tuple[str, str], tuple[float, float]]


def chapter(shared: Path) -> Chapter:
    mine = [row for row in own.rows() if row.label not in own.NAIVE]
    quantizing = [("aiconfigurator", "gemm fp8")]
    others = [
        row
        for row in (public.rows(shared, _SAMPLE, _SEED) if shared.is_dir() else ())
        if (row.source, row.family) not in quantizing
    ]
    held, real = held_out(), steps()
    parts = [
        _INTRODUCTION,
        _public(others, held) if others else "The public kernels are not at hand in this run.",
        "### Our own H200\n\n" + _own(mine),
        "### Whole traces\n\n" + written(real),
        "### The worst misses\n\n" + worst(list(own.rows())),
    ]
    return Chapter("Kernel time", "\n\n".join(parts), (_of_traces(real), *_targets(mine, others, held)))


def held_out() -> Held:
    """Return the errors by family and GPU, with known sustained rates and without, from held_out.py."""
    cells = pd.read_csv(_DATA / "held_out.csv")
    return {(row.family, row.gpu): (row.calibrated, row.data_sheet) for row in cells.itertuples()}


def errors(rows: Sequence[Row]) -> np.ndarray:
    """Return |modelled / measured - 1| of each row."""
    return np.array([abs(estimate_ns(row.cost, row.gpu) / row.nanoseconds - 1) for row in rows])


def grouped(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """Group rows by GPU and family."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.gpu.id, row.family].append(row)
    return dict(sorted(groups.items()))


def _targets(mine: Sequence[Row], others: Sequence[Row], held: Held) -> list[Target]:
    own_families = float(np.mean([errors(rows).mean() for rows in grouped(mine).values()]))
    targets = [at_most("Kernel time, our H200's op calls: mean of the families' mean errors", _KNOWN, own_families)]
    targets = list(seen(*targets))
    if others:
        known = float(np.mean([errors(rows).mean() for rows in grouped(others).values()]))
        targets += seen(
            at_most("Kernel time, public kernels of 9 GPUs: mean of the classes' mean errors", _KNOWN, known)
        )
    calibrated, sheet = (float(np.mean([pair[index] for pair in held.values()])) for index in (0, 1))
    targets.append(at_most("Kernel time, each GPU held out, sustained rates measured", _HELD_OUT, calibrated))
    targets.append(at_most("Kernel time, each GPU held out, data sheet only", _HELD_OUT, sheet))
    return targets


def _of_traces(real: Sequence[tuple[str, float, float]]) -> Target:
    error = float(np.mean([abs(modelled / measured - 1) for _, modelled, measured in real]))
    return at_most("Kernel time of whole steps, 10 traces of an H200: mean error", _KNOWN, error)


def _public(rows: Sequence[Row], held: Held) -> str:
    lines = []
    for (gpu, family), cell in grouped(rows).items():
        ratio = np.median([estimate_ns(row.cost, row.gpu) / row.nanoseconds for row in cell])
        out = [percent(error, 1) for error in held.get((family, gpu), ())] or ["", ""]
        lines.append((gpu, family, len(cell), percent(errors(cell).mean(), 1), f"{ratio:.2f}", *out))
    head = ("GPU", "op class", "rows", "mean error", "median ratio", "held out", "data sheet only")
    return "### Public kernels\n\n" + table(head, lines, 5)


def _own(rows: Sequence[Row]) -> str:
    halves = {row.family: percent(row.error, 1) for row in pd.read_csv(_DATA / "halves.csv").itertuples()}
    lines = []
    for (_, family), cell in grouped(rows).items():
        error = errors(cell)
        ratio = np.median([estimate_ns(row.cost, row.gpu) / row.nanoseconds for row in cell])
        numbers = (percent(error.mean(), 1), percent(float(np.quantile(error, 0.9))), f"{ratio:.2f}")
        lines.append((family, len(cell), *numbers, halves.get(family, "")))
    head = ("op class", "op calls", "mean error", "90th percentile", "median ratio", "other half")
    return table(head, lines, 5)


_INTRODUCTION = """Modelled ÷ measured time of single op calls, one row per class of op and GPU. Sources:
ai-dynamo/aiconfigurator (bf16 GEMMs and attention as served on A100, H100, H200 and L40S), sitar-lab/NeuSight (fp32
kernels of T4, V100, A100, L4 and H100), and our 3,000 op calls on an H200 (`benchmarks/data`). The rows are a different
sample of the same GPUs than the one used for fitting (`benchmarks/fit_*.py`). **Other half**: our op calls, predicted
with constants fitted on the other half of them (`benchmarks/halves.py`; memory-bound kernels and convolutions, whose
rows would otherwise be those of the fit). **Held out**: the constants were fitted without any row of the GPU
(`benchmarks/held_out.py`); known are its data sheet and its sustained GEMM and copy rates, which `tracekit calibrate`
measures in a minute. **Data sheet only**: the sustained rates are also estimated, from its power limit and bandwidth
and the energy of a FLOP on the other GPUs (`analyzers/cost/hardware/data_sheet.py`). Left out: GEMMs whose weights, and
decode attention whose keys, were in the L2 (in a model they are not), and aiconfigurator's fp8 GEMMs, whose times
include the quantization of the input. NeuSight's times include the launch overhead, which is subtracted: 0.6 of the
shortest call on a GPU, derived from sums of 60 MB and more."""
