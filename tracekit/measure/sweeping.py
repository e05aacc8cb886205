"""Sweeps a model and writes the outputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from tracekit.advise import parse
from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.predict import NONE, NUMBERS, SWEEP
from tracekit.reports.measure import sweep_html
from tracekit.reports.words import check_text, check_writable, csv_table, public, write_atomically
from tracekit.run import Device, Say, Settings, require, silent

PAGE, TABLE = "grid.html", "grid.csv"
MAX_SECONDS = 600.0
APPLY = ("none", "half-precision", "compile", "cuda-graphs")


def sweep(
    model: str,
    *,
    gpu: str | Sequence[str] = (),
    batch_size: int | Sequence[int] = (1, 2, 4, 8, 16, 32),
    seq_len: int | Sequence[int] = (0,),
    apply: str | Sequence[str] = APPLY,
    measure: bool = False,
    device: Device = "auto",
    max_seconds: float = MAX_SECONDS,
    output: str | Path = "",
    force: bool = False,
    say: Say = silent,
    **options: Any,
) -> pd.DataFrame:
    """Predict a model on GPUs, at batch sizes and lengths, with optimizations; return the table SWEEP.

    Each axis is a value or a sequence of values. With `measure`, each point is also measured on this machine's GPU, or
    on its CPU for device="cpu", within `max_seconds` for all points. `output` is a folder for the table and a page.
    Other options are those of `profile` for a model by name, such as workload, dtype and attention. Raises
    TracekitError as `profile` does, and without a GPU to measure on.
    """
    require("torch")
    from tracekit.measure import sweep_measured, sweep_modelled

    folder, settings = Path(output) if output else None, Settings(model=model, **options)
    title = f"{model}, {settings.workload}"
    if folder:
        check_writable(folder / PAGE)
        check_text(folder / PAGE, "a sweep of this model", ("Sweep – tracekit", escape(title)), force)
        check_text(folder / TABLE, "a sweep", ("gpu,batch_size,seq_len,apply",), force)
    place = sweep_measured.device_here(device) if measure else None
    gpus = sweep_measured.with_gpu_here(_several(gpu), place)
    if not (gpus or measure):
        raise InputError("No GPU is named.", "A sweep is modelled for GPUs.", "Add --gpu t4,l4.")
    points = grid(settings, gpus, _several(batch_size), _several(seq_len), _several(apply))
    tables = [sweep_modelled.predicted_points(points, say)] if gpus else []
    tables += [sweep_measured.sweep(points, place, max_seconds, say)] if place else []
    rows = ordered(pd.concat(tables), points)
    if folder:
        write_atomically(folder / PAGE, sweep_html(rows, title))
        write_atomically(folder / TABLE, csv_table(public(rows)))
    return rows


def _several(values: Any) -> list[Any]:
    return list(values) if isinstance(values, Sequence) and not isinstance(values, str) else [values]


MOST_POINTS = 2_000


@dataclass(frozen=True)
class Grid:
    """Each GPU with each batch size, length and combination of optimizations. `settings` are common to all points."""

    settings: Settings
    gpus: Sequence[GPU]
    batch_sizes: Sequence[int]
    seq_lens: Sequence[int]
    apply: Sequence[str]
    """Names joined with +; the first is "none"."""

    def __len__(self) -> int:
        return len(self.gpus) * len(self.batch_sizes) * len(self.seq_lens) * len(self.apply)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield each length with each batch size."""
        for length in self.seq_lens:
            for batch in self.batch_sizes:
                yield length, batch


def grid(
    settings: Settings, gpus: Sequence[str], batch_sizes: Sequence[int], seq_lens: Sequence[int], apply: Sequence[str]
) -> Grid:
    """Check and order the axes. Raises TracekitError for an unknown GPU or optimization, or too many points."""
    names = [NONE, *(name for name in dict.fromkeys(apply) if name != NONE)]
    for name in names[1:]:
        parse(name)
    known = [hardware.find(name) for name in dict.fromkeys(gpus)]
    made = Grid(settings, known, sorted(set(batch_sizes)), sorted(set(seq_lens)) or [0], names)
    if len(made) > MOST_POINTS:
        raise InputError(
            f"The sweep has {len(made):,} points.", f"It may have up to {MOST_POINTS:,}.", "Leave some values out."
        )
    return made


def ordered(points: pd.DataFrame, grid: Grid) -> pd.DataFrame:
    """Return the rows in the order of the grid, each point's measurement after its prediction."""
    orders = {"gpu": [*(gpu.id for gpu in grid.gpus), *points["gpu"]], "apply": list(grid.apply)}

    def places(column: "pd.Series[Any]") -> "pd.Series[Any]":
        return column.map(orders[str(column.name)].index) if column.name in orders else column

    return points.sort_values(["gpu", "seq_len", "batch_size", "apply"], key=places, ignore_index=True)


Row = dict[str, Any]


def refused_row(settings: Settings, name: str, source: str, why: str) -> Row:
    """Return the row of a point without numbers."""
    return {
        "gpu": settings.gpu or settings.device,
        "batch_size": settings.batch_size,
        "seq_len": settings.seq_len,
        "apply": name,
        "source": source,
        "refused": why,
        "largest_batch": -1,
        "fits": False,
        **dict.fromkeys(NUMBERS, float("nan")),
    }


def table(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the rows as the table SWEEP."""
    return SWEEP.frame({column.name: [row[column.name] for row in rows] for column in SWEEP.columns})
