"""Sweeps a model and writes the outputs."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from tracekit.analyzers.core import InputError
from tracekit.measure.sweep_modelled import grid, ordered
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
