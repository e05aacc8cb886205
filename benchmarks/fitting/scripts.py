"""Measures what no trace shows of a script's gains: the errors of gains that were predicted before they were known.

    python -m benchmarks fitting.scripts               # sets that were left out, before and after
    python -m benchmarks fitting.scripts FOLDER...     # before that, predicts the fixes again: folders of traces, each
                                                       # with the name of its set; without a trace, a row stays

Any gain has an error in the logarithm. One that saves waiting for the host has a larger one: a trace tells how long
kernels take, but not how long the host's work takes at another time. A fix may save more than the trace shows, up to
the largest gain that it allows. Of the errors that hold four fifths of the gains with a median interval that a person
can act on, or nearly with the narrowest, on the last sets, because rules before were worse, those with the least
interval score on all sets are taken. The same is done for the gains that were predicted with the latency told.

What a prediction depends on is known without its gain. Today's rules predict it (slow_scripts/predicted.csv), which
have seen the gains; widths are measured on it and on the gains that were predicted before they were known.
"""

import csv
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean, median

from msgspec import structs

from benchmarks.fitting.conformal import COVERAGE
from benchmarks.slow_scripts.command import (
    HERE,
    LAST_SETS,
    Row,
    before_gains,
    compared,
    later,
    of_first_recordings,
    set_of,
    sets_of,
    told,
)
from tracekit.advise import find, scenarios, speedup, unchanged
from tracekit.advise.outcomes import sources
from tracekit.analyzers.core import Interval
from tracekit.analyzers.predict import (
    Sources,
    Untold,
    Widths,
    interval,
    start,
    widths,
    widths_to_decide,
)
from tracekit.analyzers.trace import load

TARGET = HERE / "predicted.csv"
_HOST = 0.1
"""Width of host times. What a host changes beyond that is in the errors of gains."""
_HOSTS = tuple(part * widths_to_decide("script").host for part in (-1.0, -0.5, 0.5, 1.0))
"""Logarithms of the slowness of the simulated hosts."""
_HEAD = ("set", "script", "optimization", "expected", "down", "up", *map(str, _HOSTS), "no_loss", "most", "waiting")
_TRIED = (
    tuple(each / 100 for each in range(10, 27)),
    (0.2, 0.4, 0.5, 0.6, 0.8),
    (0.0, 0.1, 0.2, 0.3, 0.4, 0.6),
)
"""Errors of any gain, of waiting that is saved, and parts of the way to the largest gain, that are tried."""
_HELD = 0.8
"""Fraction of the gains that intervals must contain."""
_MOST = 1.8
"""Largest median of high / low that a person can act on."""
_NEARLY = 1.05
"""Widths that are this much wider than the narrowest are nearly as narrow."""


@dataclass(frozen=True)
class Predicted:
    """A gain that today's rules predict."""

    optimization: str
    expected: float
    sources: Sources


def known() -> dict[tuple[str, str], Predicted]:
    """Return today's prediction of each fix by set and script."""
    with TARGET.open(newline="", encoding="utf-8") as file:
        return {(row["set"], row["script"]): _read(row) for row in csv.DictReader(file)}


def _read(row: dict[str, str]) -> Predicted:
    hosts = {log: float(row[str(log)]) for log in _HOSTS}
    ends = (float(row["down"]), float(row["up"]))
    most = float(row["most"])
    keeps = find(row["optimization"]).keeps_kernels
    known = Sources(ends, hosts, row["no_loss"] == "yes", most, keeps_kernels=keeps, waiting=float(row["waiting"]))
    return Predicted(row["optimization"], float(row["expected"]), known)


def _predictions(folders: list[Path]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each script whose trace is there, and for which the fix is predicted."""
    asked = {(row["set"], row["script"]): row["first_advice"] for row in compared(of_first_recordings())}
    for (set_, script), name in sorted(asked.items()):
        found = [path for each in folders if each.name == set_ and (path := each / f"{script}.json.gz").is_file()]
        base = start(load(found[0]), None)[1] if found else None
        optimization = find(name)
        if base is None or optimization.obstacle(base):
            continue
        before, after = unchanged(base, _HOSTS), scenarios(optimization, base, _HOSTS)
        gain, on = speedup(before, after).expected, sources(before, after)
        numbers = [gain, *on.outcome, *on.host.values()]
        yield (
            set_,
            script,
            name,
            *(f"{x:.4g}" for x in numbers),
            "yes" if on.no_loss else "no",
            *(f"{x:.4g}" for x in (on.most, on.waiting)),
        )


@dataclass(frozen=True)
class Judged:
    """A gain that was predicted and measured."""

    set: str
    script: str
    optimization: str
    expected: float
    measured: float
    sources: Sources

    def interval(self, known: Widths) -> Interval:
        return interval(self.expected, self.sources, known)


def score(low: float, high: float, measured: float) -> float:
    """Return the interval score: the width, and for a miss 2 / (1 - COVERAGE) times what it misses by (Gneiting and
    Raftery, 2007)."""
    missed = max(math.log(low / measured), math.log(measured / high), 0.0)
    return math.log(high / low) + 2 / (1 - COVERAGE) * missed


def blind_rows() -> list[Judged]:
    """Return the gains as they were predicted before they were known, with what they depend on as today's rules see it.

    Rows are left out whose trace is not kept, or whose first advice is another today.
    """
    return list(_judged(before_gains()))


def told_rows() -> list[Judged]:
    """Return the gains as they were predicted with the latency told, before they were known."""
    return list(_judged(told()))


def later_rows() -> list[Judged]:
    """Return the same gains, and others, as today's rules predict them, which have seen them."""
    today, rows = known(), _judged([*before_gains(), *later()])
    return [replace(row, expected=today[row.set, row.script].expected) for row in rows]


def _judged(rows: Iterable[Row]) -> Iterator[Judged]:
    today, seen = known(), set()
    for row in compared(list(rows)):
        key = set_of(row), row["script"]
        if key in today and key not in seen and today[key].optimization == row["first_advice"]:
            seen.add(key)
            gain = float(row["expected"]), float(row["gain"])
            yield Judged(*key, row["first_advice"], *gain, today[key].sources)


def fit(rows: Sequence[Judged]) -> Widths:
    """Return the widths with the least score on all rows, of those that hold the gains of the last sets and are narrow
    enough for them, or nearly as narrow as any that hold them. What outcomes differ by is a part of the errors of
    gains."""
    last = [row for row in rows if row.set in recent()] or rows
    start = structs.replace(widths("timed"), outcome=0.0, host=_HOST)
    tried = [structs.replace(start, untold=Untold(*errors)) for errors in product(*_TRIED)]
    judged = [(each, *summary([(row, row.interval(each)) for row in last])) for each in tried]
    holding = [each for each in judged if each[2] >= _HELD] or judged
    most = max(_MOST, _NEARLY * min(span for *_, span, _ in holding))
    narrow = [known for known, _, _, span, _ in holding if span <= most]
    return min(narrow, key=lambda known: summary([(row, row.interval(known)) for row in rows])[3])


@cache
def recent() -> frozenset[str]:
    """Return the names of the sets whose errors are taken: the last ones."""
    return frozenset(sets_of(before_gains())[-LAST_SETS:])


def left_out(rows: Sequence[Judged], judged: Sequence[Judged]) -> list[tuple[Judged, Interval]]:
    """Return each judged row with its interval, whose widths were measured on the rows of other sets."""
    result = []
    for name in dict.fromkeys(row.set for row in judged):
        of_others = fit([row for row in rows if row.set != name])
        result += [(row, row.interval(of_others)) for row in judged if row.set == name]
    return result


def summary(pairs: Sequence[tuple[Judged, Interval]]) -> tuple[int, float, float, float]:
    """Return the number of rows, the part inside, the median of high / low, and the mean interval score."""
    hits = [bounds.low <= row.measured <= bounds.high for row, bounds in pairs]
    ratios = [bounds.high / bounds.low for _, bounds in pairs]
    scored = [score(bounds.low, bounds.high, row.measured) for row, bounds in pairs]
    return len(pairs), fmean(hits), median(ratios), fmean(scored)


def _write(predictions: Iterable[tuple[object, ...]]) -> None:
    with TARGET.open(newline="", encoding="utf-8") as file:
        rows: dict[object, Sequence[object]] = {(row[0], row[1]): row for row in list(csv.reader(file))[1:]}
    rows |= {row[:2]: row for row in predictions}
    with TARGET.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([_HEAD, *(rows[key] for key in sorted(rows, key=str))])


def main() -> None:
    if sys.argv[1:]:
        _write(_predictions([Path(folder) for folder in sys.argv[1:]]))
    blind = blind_rows()
    for title, judged in (("blind", blind), ("gains known", later_rows())):
        pairs = left_out(blind, judged)
        last = [pair for pair in pairs if pair[0].set in recent()]
        for of, some in (("all", pairs), ("recent sets", last)):
            print(title, of, *(f"{number:.3g}" for number in summary(some)))


if __name__ == "__main__":
    main()
