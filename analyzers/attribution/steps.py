"""Steps and phases of a run: which host ranges mark them, and which is open at a moment."""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers import ranges
from tracekit.analyzers.attribution.intervals import covered_until
from tracekit.analyzers.attribution.nesting import Nest, Rows, take
from tracekit.analyzers.attribution.serving import serving_phase

Ints = npt.NDArray[np.int64]

_PROFILER_STEP = re.compile(r"ProfilerStep#\d+")
_USER_STEP = re.compile(r"(?:[A-Za-z]+[ _-])?(?:step|iteration|iter)[ _:#-]*\d+", re.IGNORECASE)


@dataclass(frozen=True)
class Marks:
    """Host rows that mark steps (in order of start) and phases."""

    steps: Ints
    phases: Ints
    phase_names: tuple[str, ...]
    """One a phase row."""


def find_marks(host: pd.DataFrame) -> Marks:
    """Steps from tracekit's ranges, else ProfilerStep#N, else batches of a serving engine, else ranges like step_N.

    Of nested steps the outermost, of several ranks' one's. Phases from tracekit's ranges, else what each batch of a
    serving engine does.
    """
    ranges_of = _Ranges(host)
    parsed = [ranges.parse(name) or ("", "", "") for name in ranges_of.names]
    names = [path if kind == "phase" else "" for kind, path, _ in parsed]
    if not any(names):
        names = [serving_phase(name) or "" for name in ranges_of.names]
    phases, number = ranges_of.named([bool(name) for name in names])
    steps = _steps(host, ranges_of, [kind == "step" for kind, _, _ in parsed])
    return Marks(steps, phases, tuple(names[i] for i in number.tolist()))


def is_step_name(name: str) -> bool:
    """A range of this name marks a step rather than a part of the model."""
    return bool(_PROFILER_STEP.fullmatch(name) or _USER_STEP.fullmatch(name) or serving_phase(name))


def step_at(host: pd.DataFrame, marks: Marks, time: Ints) -> Rows:
    """Ordinal of the step open at each moment, on any thread; -1: none. 0 throughout in a trace without steps."""
    if not len(marks.steps):
        return np.zeros(len(time), dtype=np.int32)
    ordinal = np.full(len(host), -1, dtype=np.int32)
    ordinal[marks.steps] = np.arange(len(marks.steps))
    return take(ordinal, _open_at(host, marks.steps, time))


def phase_at(host: pd.DataFrame, marks: Marks, time: Ints) -> pd.Categorical:
    """Name of the innermost phase open at each moment, on any thread; "": none."""
    names = pd.Categorical([*marks.phase_names, ""])
    code = np.full(len(host), names.codes[-1], dtype=names.codes.dtype)
    code[marks.phases] = names.codes[:-1]
    at = take(code, _open_at(host, marks.phases, time), absent=names.codes[-1])
    return pd.Categorical.from_codes(at, names.categories)


def _open_at(host: pd.DataFrame, rows: Ints, time: Ints) -> Rows:
    return _nest(host, rows).around(np.zeros(len(time), dtype=np.int8), time)


class _Ranges:
    """Host rows of user ranges, and their distinct names."""

    def __init__(self, host: pd.DataFrame) -> None:
        self._rows = np.flatnonzero((host["category"] == "range").to_numpy())
        self._number, names = pd.factorize(host["name"].iloc[self._rows])
        self.names = [str(name) for name in names]

    def named(self, wanted: list[bool]) -> tuple[Ints, Ints]:
        """The rows whose name is wanted, and the number of each one's name."""
        mask = np.array([*wanted, False])[self._number]
        return self._rows[mask], self._number[mask]


def _steps(host: pd.DataFrame, ranges_of: _Ranges, ours: list[bool]) -> Ints:
    rows, _ = ranges_of.named(ours)
    if not rows.size:
        rows, _ = ranges_of.named([bool(_PROFILER_STEP.fullmatch(name)) for name in ranges_of.names])
    for is_step in (serving_phase, _USER_STEP.fullmatch):
        if not rows.size:
            rows, _ = ranges_of.named([bool(is_step(name)) for name in ranges_of.names])
            rows = rows[_nest(host, rows).parents()[rows] < 0]
    rows = rows[np.argsort(host["start_ns"].to_numpy()[rows], kind="stable")]
    return _of_one_rank(host, rows)


def _of_one_rank(host: pd.DataFrame, rows: Ints) -> Ints:
    """Ranks that were recorded together step together: where steps of several threads overlap, one thread's stand for
    all, that of the most steps."""
    start = host["start_ns"].to_numpy()[rows]
    end, thread = start + host["duration_ns"].to_numpy()[rows], host["thread"].to_numpy()[rows]
    if not (covered_until(start, end, np.zeros(len(rows), dtype=np.int64)) > start).any():
        return rows
    return rows[thread == np.bincount(thread).argmax()]


def _nest(host: pd.DataFrame, rows: Ints) -> Nest:
    mask = np.zeros(len(host), dtype=bool)
    mask[rows] = True
    return Nest(host, mask, by_time=True)
