"""Convert starts and ends of rows to times after a common base, and drop impossible ones."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.problems import Problem, problem
from tracekit.analyzers.readers.durations import DAY_NS, cap_days, horizon
from tracekit.analyzers.readers.nsys.database import MISSING, Rows

Ints = npt.NDArray[np.int64]

_MONTH_NS = 30 * DAY_NS


@dataclass(frozen=True)
class Timed:
    """Tables with `start_ns` after `base_ns` and `duration_ns` instead of `start` and `end`."""

    tables: list[Rows]
    base_ns: int = 0
    problems: list[Problem] = field(default_factory=list)


def timed(tables: list[Rows]) -> Timed:
    """Keep rows that start within a month of the median. Rows without an end last until the recording ends."""
    starts = np.concatenate([t["start"] for t in tables])
    starts = starts[starts != MISSING]
    if not len(starts):
        return Timed([])
    middle = int(np.partition(starts, len(starts) // 2)[len(starts) // 2])
    kept = [_take(t, _near(t["start"], middle)) for t in tables]
    if not sum(len(t["start"]) for t in kept):
        return Timed([])
    base = min(int(t["start"].min()) for t in kept if len(t["start"]))
    ends = [np.where(_near(t["end"], middle), t["end"], t["start"]) for t in kept]
    last = max(horizon(t["start"], e - t["start"]) for t, e in zip(kept, ends, strict=True) if len(e))
    negative = sum(int((_ended(t) & (t["end"] < t["start"])).sum()) for t in kept)
    long = sum(int((_ended(t) & (_duration(t) > DAY_NS)).sum()) for t in kept)
    return Timed(
        tables=[_settled(t, base, last) for t in kept],
        base_ns=base,
        problems=[
            problem("implausible-time", sum(len(t["start"]) for t in tables) - sum(len(t["start"]) for t in kept)),
            problem("negative-duration", negative),
            problem("capped-duration", long),
            problem("unended-ranges", sum(int((~_ended(t)).sum()) for t in kept)),
        ],
    )


def _settled(table: Rows, base: int, last: int) -> Rows:
    columns = dict(table)
    start = columns.pop("start")
    end = np.where(_ended(table), columns.pop("end"), last)
    duration = cap_days(start, np.maximum(_span(start, end), 0), last)
    return {"start_ns": start - base, "duration_ns": duration, **columns}


def _ended(table: Rows) -> npt.NDArray[np.bool_]:
    return table["end"] != MISSING


def _duration(table: Rows) -> Ints:
    return _span(table["start"], table["end"])


def _span(start: Ints, end: Ints) -> Ints:
    """Return end minus start, without the overflow that an invalid end could cause."""
    return np.clip(end, -(1 << 62), 1 << 62) - start


def _near(times: Ints, middle: int) -> npt.NDArray[np.bool_]:
    """Return whether times are within a month of the middle, and far from the ends of int64. Floats do not overflow."""
    return (times > MISSING) & (times < -MISSING) & (np.abs(times.astype(np.float64) - middle) < _MONTH_NS)


def _take(table: Rows, rows: npt.NDArray[np.bool_]) -> Rows:
    return {name: values[rows] for name, values in table.items()}
