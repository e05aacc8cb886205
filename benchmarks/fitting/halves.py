"""Judges our own op calls by constants fitted to other calls, and writes benchmarks/data/halves.csv.

    python -m benchmarks fitting.halves [--shared DIRECTORY] [--dry-run]

Kernels that move memory, and convolutions: each section of constants.toml is fitted on half of its op calls, in pairs
as they were measured, and on all public rows; the other half is predicted, and the halves change places.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy.kernels import errors
from benchmarks.fitting import constants, memory
from benchmarks.fitting.constants import Asked, arguments
from benchmarks.measurements import own
from benchmarks.measurements.own import Row
from tracekit.analyzers.cost.time import estimate
from tracekit.analyzers.cost.time.memory_bound import kind

FILE = Path(__file__).parents[1] / "data" / "halves.csv"


def main() -> None:
    asked = arguments(__doc__)
    errors: dict[str, list[float]] = defaultdict(list)
    for path, rows in sections(asked).items():
        for tested, error in judged(path, rows):
            errors[tested.family].append(error)
    means = {family: float(np.mean(every)) for family, every in sorted(errors.items())}
    for family, mean in means.items():
        print(f"{family:<26}{len(errors[family]):>5}{mean:>8.1%}")
    if asked.write:
        with FILE.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(("family", "error"))
            out.writerows((family, round(mean, 4)) for family, mean in means.items())


def sections(asked: Asked) -> dict[str, list[Row]]:
    """Return the rows of each section, including public ones."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in memory.measured(asked):
        groups[f"memory.{kind(row.cost)}"].append(row)
    groups["convolution"] = [row for row in own.rows() if row.cost.family == "convolution"]
    return groups


def judged(path: str, rows: Sequence[Row]) -> Iterator[tuple[Row, float]]:
    """Yield each of our own rows with its error. The section's constants are restored afterwards."""
    mine = [row for row in rows if row.source == "own"]
    public = [row for row in rows if row.source != "own"]
    shipped = constants.own(constants.section_of(path))
    for half in (0, 1):
        known = public + [row for number, row in enumerate(mine) if number // 2 % 2 != half]
        tested = [row for number, row in enumerate(mine) if number // 2 % 2 == half]
        if known and tested:
            constants.fit(path, known, lambda row: row.gpu.id, memory.GIVEN)
            estimate.estimate_ns.cache_clear()
            yield from zip(tested, errors(tested), strict=True)
        constants.section_of(path).update(shipped)


if __name__ == "__main__":
    main()
