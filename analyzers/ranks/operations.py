"""Reads the operations of a training job: Parquet with one row per operation of a worker, step and micro-batch.

A worker is a rank of the data-parallel group and a stage of the pipeline. The format tells itself by its columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import UNPACKED, InputError, Ints, MissingPackageError, installing, reading
from tracekit.analyzers.trace import problems

Columns = Mapping[str, npt.NDArray]

_NEEDED = ("dp_rank", "stage", "step", "optype", "start_ts", "duration")
_NUMBERED = ("rank", "seq_id", "mc", "gmc")
_MAGIC, _MOST_FOOTER = b"PAR1", 64 << 20
_BYTES_PER_ROW = 8 * (len(_NEEDED) + len(_NUMBERED))
_MOST_SECONDS = 1e7
_LARGEST_NUMBER = 2**31

FORWARD, BACKWARD = "forward-compute", "backward-compute"
CLIP, OPTIMIZER = "optimizer-clip-main-grad", "optimizer"
COMPUTE = (FORWARD, BACKWARD, CLIP, OPTIMIZER, "gc")
PASSED = {"forward-send": 0, "forward-recv": -1, "backward-send": 0, "backward-recv": 1}
"""Operations between stages, with the distance from their stage to the one that sends."""
GATHERS = ("params-all-gather",)
REDUCTIONS = (
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
    "separate-grads-all-reduce",
    "grads-reduce-scatter",
)
COMPUTED = tuple(kind for kind in COMPUTE if kind != CLIP)
"""Clipping waits for the norm of all gradients: it is in the order of computation, and a collective."""
KINDS = (*COMPUTE, *PASSED, *GATHERS, *REDUCTIONS)


@dataclass(frozen=True, eq=False)
class Operations:
    """The operations of a job, ordered by worker, step and start, and what was wrong with the file."""

    table: pd.DataFrame
    """worker, step and kind as positions in `workers`, `steps` and KINDS; start and end in ns; seq_id among those of
    its kind in the step; mc and gmc: chunk of the worker and of the model; -1: none."""
    workers: pd.DataFrame
    """dp_rank, stage and rank of each worker, and its place among those that share the first two (peer)."""
    steps: Ints
    problems: pd.DataFrame

    def of(self, *kinds: str) -> npt.NDArray[np.bool_]:
        """Return which rows are of these kinds."""
        return np.isin(self.table["kind"].to_numpy(), [KINDS.index(kind) for kind in kinds])

    def of_steps(self, chosen: Ints) -> "Operations":
        """Return the operations of the steps at these positions. Raises InputError if there are none."""
        if not len(chosen):
            why = "In every step, operations would wait for each other in a circle."
            raise InputError("The operations cannot be replayed.", why, "Check their numbers (seq_id).")
        number = np.full(len(self.steps), -1)
        number[chosen] = np.arange(len(chosen))
        step = number[self.table["step"].to_numpy()]
        table = self.table.assign(step=step)[step >= 0].reset_index(drop=True)
        return replace(self, table=table, steps=self.steps[chosen])


def is_operations(path: Path) -> bool:
    """Return whether a file is Parquet whose footer names the needed columns."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 8))
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC or not 0 < length <= min(_MOST_FOOTER, size - 8):
            return False
        file.seek(size - 8 - length)
        footer = file.read(length)
    return all(name.encode() in footer for name in _NEEDED)


def read_operations(path: Path) -> Operations:
    """Raises InputError if the file is damaged, or has no usable operation; MissingPackageError without pyarrow."""
    return cleaned(_columns(path), path.name)


def _columns(path: Path) -> Columns:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingPackageError(
            f"{path.name} needs an optional package.", "Parquet files need pyarrow.", installing("pyarrow")
        ) from error
    try:
        with reading(f"{path.name} cannot be read.", "Check the path and its permissions."):
            file = parquet.ParquetFile(path)
            UNPACKED.check(file.metadata.num_rows * _BYTES_PER_ROW, path.name)
            names = [name for name in (*_NEEDED, *_NUMBERED) if name in file.schema_arrow.names]
            table = file.read(columns=names)
        return {name: _values(table[name], name) for name in names}
    except (arrow.ArrowException, ValueError, TypeError) as error:
        why = "It is damaged, or a column is of another type."
        raise InputError(f"{path.name} cannot be read as operations of a job.", why, "Export it again.") from error


def _values(column: Any, name: str) -> npt.NDArray:
    """Return a column as floats, or the kinds as text."""
    from pyarrow import compute, types

    if name != "optype":
        return np.asarray(compute.cast(column, "float64").to_numpy(), dtype=np.float64)
    coded = column if types.is_dictionary(column.type) else compute.dictionary_encode(column)
    chunks = coded.unify_dictionaries().combine_chunks()
    whole = chunks.chunk(0) if hasattr(chunks, "chunk") else chunks
    names = np.array([*map(str, whole.dictionary.to_pylist()), ""], dtype=object)
    return names[compute.fill_null(whole.indices, len(names) - 1).to_numpy(zero_copy_only=False)]


def cleaned(columns: Columns, name: str) -> Operations:
    """Return the usable operations; what is left out is a row of `problems`. Raises InputError if nothing is left."""
    if absent := [each for each in _NEEDED if each not in columns]:
        raise InputError(f"{name} lacks the column {absent[0]}.", "It says where or when an operation ran.", "")
    rows = pd.DataFrame(columns)
    known = rows["optype"].isin(KINDS)
    foreign = sorted(rows["optype"][~known].unique().tolist())
    sound = _sound(rows)
    kept = rows[known & sound]
    places = ["dp_rank", "stage", *(["rank"] if "rank" in kept else [])]
    again = kept.duplicated([*places, "step", "optype", "seq_id" if "seq_id" in kept else "start_ts"])
    kept, partial = _whole_steps(kept[~again], places)
    if kept.empty:
        why = "No row has a known type, a worker, a step, a start and a duration."
        raise InputError(f"{name} contains no usable operation.", why, "Export it again.")
    notes = [
        problems.problem("operations-unusable", int((known & ~sound).sum())),
        problems.problem("operations-unknown", int((~known).sum()), ", ".join(foreign[:3])),
        problems.problem("operations-repeated", int(again.sum())),
        problems.problem("steps-partial", partial),
    ]
    return _numbered(kept, places, problems.table(notes))


def _sound(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Return which rows have finite times and whole numbers in range."""
    times = rows[["start_ts", "duration"]]
    numbers = rows.drop(columns=["optype", "start_ts", "duration"])
    good = times.abs().le(_MOST_SECONDS).all(axis=1) & rows["duration"].ge(0)
    good &= (numbers.abs().lt(_LARGEST_NUMBER) & numbers.eq(numbers.round())).all(axis=1)
    return good & rows["dp_rank"].ge(0) & rows["stage"].ge(0)


def _whole_steps(rows: pd.DataFrame, places: list[str]) -> tuple[pd.DataFrame, int]:
    """Return the rows of the steps in which every worker has operations, and how many steps are left out; all rows if
    no step is whole."""
    workers = rows.drop_duplicates([*places, "step"]).groupby("step").size()
    whole = workers.index[workers == len(rows.drop_duplicates(places))]
    return (rows[rows["step"].isin(whole)], len(workers) - len(whole)) if len(whole) else (rows, 0)


def _numbered(rows: pd.DataFrame, places: list[str], notes: pd.DataFrame) -> Operations:
    """Number workers and steps, and order the operations."""
    workers = rows[places].drop_duplicates().sort_values(["stage", "dp_rank", *places[2:]], ignore_index=True)
    workers = workers.astype(np.int64)
    worker = rows[places].merge(workers.assign(worker=np.arange(len(workers))), on=places, how="left")["worker"]
    steps, step = np.unique(rows["step"].to_numpy(), return_inverse=True)
    start = rows["start_ts"].to_numpy() * 1e9
    numbers = {name: rows[name].to_numpy(np.int64) if name in rows else -1 for name in ("seq_id", "mc", "gmc")}
    kind = pd.Categorical(rows["optype"], categories=KINDS).codes.astype(np.int64)
    end = start + rows["duration"].to_numpy() * 1e9
    table = pd.DataFrame(
        {"worker": worker.to_numpy(), "step": step, "kind": kind, "start": start, "end": end, **numbers}
    )
    table = table.sort_values(["worker", "step", "start", "end"], ignore_index=True)
    kinds = [table[name] for name in ("worker", "step", "kind")]
    counted = table.groupby(kinds).cumcount()
    table["seq_id"] = counted if (table["seq_id"] < 0).any() else table["seq_id"]
    stages = int(workers["stage"].max()) + 1
    of_model = table["mc"] * stages + workers["stage"].to_numpy()[table["worker"]]
    table["gmc"] = np.where(table["gmc"] >= 0, table["gmc"], np.where(table["mc"] >= 0, of_model, -1))
    workers["peer"] = workers.groupby(["dp_rank", "stage"]).cumcount()
    return Operations(table, workers, steps.astype(np.int64), notes)
