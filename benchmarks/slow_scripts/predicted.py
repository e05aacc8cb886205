"""Predicts the fixes of slow scripts again, and writes what each prediction depends on to predicted.csv.

    python -m benchmarks slow_scripts.predicted FOLDER...      # folders of traces, one for each script

Gains are known to these rules. What a prediction depends on is known without them: widths are measured on it and on the
gains that were predicted before they were known (benchmarks/fitting/scripts.py).
"""

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.slow_scripts.command import HERE, compared, of_first_recordings
from tracekit.advise import find, scenarios, speedup, unchanged
from tracekit.advise.outcomes import sources
from tracekit.analyzers.predict import SAVED, Sources, start
from tracekit.analyzers.trace import load

TARGET = HERE / "predicted.csv"
_HOSTS = (-0.6, -0.3, 0.3, 0.6)
"""Logarithms of the slowness of the simulated hosts."""
_HEAD = ("set", "script", "optimization", "expected", "down", "up", *map(str, _HOSTS), *SAVED, "no_loss", "most")


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
    saved = {kind: float(row[kind]) for kind in SAVED}
    ends = (float(row["down"]), float(row["up"]))
    known = Sources(ends, hosts, saved, row["no_loss"] == "yes", float(row["most"]))
    return Predicted(row["optimization"], float(row["expected"]), known)


def _rows(folders: list[Path]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each script whose trace is there, and for which the fix is predicted."""
    asked = {(row["set"], row["script"]): row["first_advice"] for row in compared(of_first_recordings())}
    for (set_, script), name in sorted(asked.items()):
        found = [folder / f"{script}.json.gz" for folder in folders if (folder / f"{script}.json.gz").is_file()]
        base = start(load(found[0]), None)[1] if found else None
        optimization = find(name)
        if base is None or optimization.obstacle(base):
            continue
        before, after = unchanged(base, _HOSTS), scenarios(optimization, base, _HOSTS)
        gain, on = speedup(before, after).expected, sources(before, after)
        numbers = [gain, *on.outcome, *on.host.values(), *(on.saved.get(kind, 0.0) for kind in SAVED)]
        yield set_, script, name, *(f"{x:.4g}" for x in numbers), "yes" if on.no_loss else "no", f"{on.most:.4g}"


def main() -> None:
    rows = list(_rows([Path(folder) for folder in sys.argv[1:]]))
    with TARGET.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([_HEAD, *rows])


if __name__ == "__main__":
    main()
