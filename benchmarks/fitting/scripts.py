"""Measures what no trace shows of a script's gains: the errors of gains that were predicted before they were known.

    python -m benchmarks fitting.scripts               # sets that were left out, before and after
    python -m benchmarks fitting.scripts FOLDER...     # before that, predicts the fixes again: folders of traces, of
                                                       # which one named as the set is taken before others

A gain has an error in the logarithm, which is a part of the gain. It lies below the expected gain, and above the
largest one that the trace allows: of 37 gains that were predicted with the latter as the end, 16 were larger. The part
with the least interval score is taken.

What a prediction depends on is known without its gain. Today's rules predict it (slow_scripts/predicted.csv), which
have seen the gains; widths are measured on it and on the gains that were predicted before they were known.
"""

import csv
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

from msgspec import structs

from benchmarks.fitting.conformal import COVERAGE
from benchmarks.slow_scripts.command import HERE, Row, before_gains, compared, later, of_first_recordings
from tracekit.advise import find, scenarios, speedup, unchanged
from tracekit.advise.outcomes import sources
from tracekit.analyzers.core import Interval
from tracekit.analyzers.predict import Sources, Widths, interval, start, widths
from tracekit.analyzers.trace import load

TARGET = HERE / "predicted.csv"
_HOSTS = tuple(part * widths("script").host for part in (-1.0, -0.5, 0.5, 1.0))
"""Logarithms of the slowness of the simulated hosts."""
_HEAD = ("set", "script", "optimization", "expected", "down", "up", *map(str, _HOSTS), "no_loss", "most")
_PARTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
"""Parts of the gain that are tried."""


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
    limit = most if find(row["optimization"]).keeps_kernels else math.inf
    known = Sources(ends, hosts, row["no_loss"] == "yes", most, limit)
    return Predicted(row["optimization"], float(row["expected"]), known)


def _predictions(folders: list[Path]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each script whose trace is there, and for which the fix is predicted."""
    asked = {(row["set"], row["script"]): row["first_advice"] for row in compared(of_first_recordings())}
    for (set_, script), name in sorted(asked.items()):
        found = [path for folder in folders if (path := folder / f"{script}.json.gz").is_file()]
        found.sort(key=lambda path: path.parent.name != set_)
        base = start(load(found[0]), None)[1] if found else None
        optimization = find(name)
        if base is None or optimization.obstacle(base):
            continue
        before, after = unchanged(base, _HOSTS), scenarios(optimization, base, _HOSTS)
        gain, on = speedup(before, after).expected, sources(before, after)
        numbers = [gain, *on.outcome, *on.host.values()]
        yield set_, script, name, *(f"{x:.4g}" for x in numbers), "yes" if on.no_loss else "no", f"{on.most:.4g}"


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

    def score(self, known: Widths) -> float:
        """Return the interval score of the log gain, in which less is better."""
        bounds = self.interval(known)
        return score(bounds.low, bounds.high, self.measured)


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


def later_rows() -> list[Judged]:
    """Return the same gains, and others, as today's rules predict them, which have seen them."""
    return [
        replace(row, expected=known()[row.set, row.script].expected) for row in _judged([*before_gains(), *later()])
    ]


def _judged(rows: Iterable[Row]) -> Iterator[Judged]:
    today, seen = known(), set()
    for row in compared(list(rows)):
        key = row["set"], row["script"]
        if key in today and key not in seen and today[key].optimization == row["first_advice"]:
            seen.add(key)
            gain = float(row["expected"]), float(row["gain"])
            yield Judged(*key, row["first_advice"], *gain, today[key].sources)


def fit(rows: Sequence[Judged]) -> Widths:
    """Return the widths with the least interval score. That of hosts is that of timed runs: the profiler's share is a
    part of the errors of gains. What an optimization's outcomes differ by is, too."""
    start = structs.replace(widths("timed"), outcome=0.0)
    tried = [structs.replace(start, untold=part) for part in _PARTS]
    return min(tried, key=lambda each: _mean(each, rows))


def _mean(known: Widths, rows: Sequence[Judged]) -> float:
    return fmean(row.score(known) for row in rows)


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


def main() -> None:
    if sys.argv[1:]:
        rows = list(_predictions([Path(folder) for folder in sys.argv[1:]]))
        with TARGET.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([_HEAD, *rows])
    blind = blind_rows()
    for title, judged in (("blind", blind), ("gains known", later_rows())):
        pairs = left_out(blind, judged)
        last = [pair for pair in pairs if pair[0].set in ("thirteenth", "fourteenth")]
        for of, some in (("all", pairs), ("last two sets", last)):
            print(title, of, *(f"{number:.3g}" for number in summary(some)))


if __name__ == "__main__":
    main()
