"""Steps and phases of a run: which host ranges mark them, and which is open at a moment."""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers import ranges
from analyzers.attribution.nesting import Nest, take

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
    """Steps from tracekit's ranges, else ProfilerStep#N, else ranges like step_N that no other such range contains."""
    is_range = (host["category"] == "range").to_numpy()
    parsed = _per_name(host, is_range, ranges.parse)
    kinds = np.array([found[0] if found else "" for found in parsed], dtype=object)
    phases = np.flatnonzero(kinds == "phase")
    names = tuple(parsed[row][1] for row in phases)
    return Marks(_steps(host, is_range, kinds == "step"), phases, names)


def is_step_name(name: str) -> bool:
    """A range of this name marks a step rather than a part of the model."""
    return bool(_PROFILER_STEP.fullmatch(name) or _USER_STEP.fullmatch(name))


def step_at(host: pd.DataFrame, marks: Marks, time: Ints) -> Ints:
    """Ordinal of the step open at each moment, on any thread; -1: none. 0 throughout in a trace without steps."""
    if not len(marks.steps):
        return np.zeros(len(time), dtype=np.int64)
    ordinal = np.full(len(host), -1, dtype=np.int64)
    ordinal[marks.steps] = np.arange(len(marks.steps))
    return take(ordinal, _open_at(host, marks.steps, time))


def phase_at(host: pd.DataFrame, marks: Marks, time: Ints) -> pd.Categorical:
    """Name of the innermost phase open at each moment, on any thread; "": none."""
    names = pd.Categorical([*marks.phase_names, ""])
    code = np.full(len(host), names.codes[-1], dtype=np.int64)
    code[marks.phases] = names.codes[:-1]
    at = take(code, _open_at(host, marks.phases, time), absent=names.codes[-1])
    return pd.Categorical.from_codes(at, names.categories)


def _open_at(host: pd.DataFrame, rows: Ints, time: Ints) -> Ints:
    mask = np.zeros(len(host), dtype=bool)
    mask[rows] = True
    return Nest(host, mask, by_time=True).around(np.zeros(len(time), dtype=np.int64), time)


def _steps(host: pd.DataFrame, is_range: npt.NDArray[np.bool_], ours: npt.NDArray[np.bool_]) -> Ints:
    candidates = [ours, _per_name(host, is_range, _PROFILER_STEP.fullmatch).astype(bool)]
    user = _per_name(host, is_range, _USER_STEP.fullmatch).astype(bool)
    candidates.append(user & (Nest(host, user, by_time=True).parents() < 0))
    rows = next((np.flatnonzero(mask) for mask in candidates if mask.any()), np.empty(0, dtype=np.int64))
    return rows[np.argsort(host["start_ns"].to_numpy()[rows], kind="stable")]


def _per_name(host: pd.DataFrame, mask: npt.NDArray[np.bool_], answer) -> npt.NDArray[np.object_]:  # type: ignore[no-untyped-def]
    """answer(name) per row of `mask`, asked once a distinct name; None for other rows."""
    answers = np.full(len(host), None, dtype=object)
    codes, names = pd.factorize(host["name"][mask])
    found = np.empty(len(names), dtype=object)
    found[:] = [answer(str(name)) for name in names]
    answers[mask] = found[codes]
    return answers
