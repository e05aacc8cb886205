"""Predicted and measured gains of the slow scripts in benchmarks/cases whose mistake was mended."""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from blind.hosts import HOST_LOGS

from fitting.conformal import Judged
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.start import start
from tracekit.analyzers.readers import load
from tracekit.optimizations import find
from tracekit.optimizations.base import Optimization
from tracekit.planning.scenarios import Scenarios, refusal, scenarios, sources, speedup, unchanged

CASES = Path(__file__).parents[1] / "cases"
sys.path.append(str(CASES))

from catalogue import cases  # noqa: E402
from diagnose import RECORDED  # noqa: E402

SETS = tuple(RECORDED)


def mended_rows(number: int) -> Iterator[Judged]:
    """Yield a row for each measured case of a set that a mend of a mistake makes fast."""
    folder = CASES / RECORDED[number]
    if not (folder / "measured.json").exists():
        return
    measured = json.loads((folder / "measured.json").read_text("utf-8"))["cases"]
    for case in cases(number).values():
        mends = [each for each in map(find, case.measured_ids) if each.mends_mistake]
        if mends and "gain" in measured.get(case.name, {}):
            _, base = start(load(folder / f"{case.name}.json.gz"))
            best = _best(mends, base) if base else None
            if best:
                gain, chosen, before, after = best
                residual = math.log(measured[case.name]["gain"]["median"] / gain)
                yield Judged("mended", f"set {number}", case.name, chosen.id, residual, sources(before, after))


def _best(mends: list[Optimization], base: Baseline) -> tuple[float, Optimization, Scenarios, Scenarios] | None:
    """Return the mend with the largest expected gain, and its scenarios; None if all are refused."""
    before = unchanged(base, HOST_LOGS)
    judged = []
    for each in mends:
        if not refusal(each, base):
            after = scenarios(each, base, HOST_LOGS)
            judged.append((speedup(before, after).expected, each, before, after))
    return max(judged, key=lambda row: row[0], default=None)
