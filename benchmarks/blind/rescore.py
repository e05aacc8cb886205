"""Predicts a measured round again with today's model, and writes the errors and the sources of the intervals.

    python -m benchmarks blind.rescore ROUND/MACHINE PLAN TRACED

TRACED is the OUT folder of measure.py --trace-only. Writes ROUND/MACHINE/rescored.csv. The model has seen the round:
this is no test of it, and `benchmarks/fitting/intervals.py` measures widths by it.
"""

import argparse
import csv
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.blind.plan import Run, read
from benchmarks.blind.predict import HOST_LOGS, stated
from tracekit.advise import parse, refusal, scenarios, speedup, unchanged
from tracekit.advise.outcomes import sources
from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.predict import Baseline, start
from tracekit.analyzers.trace import cache


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machine", type=Path)
    parser.add_argument("plan", type=Path)
    parser.add_argument("traced", type=Path)
    asked = parser.parse_args()
    measured = json.loads((asked.machine / "measured.json").read_text(encoding="utf-8"))["runs"]
    traced = json.loads((asked.traced / "traced.json").read_text(encoding="utf-8"))
    rows = [row for run in read(asked.plan).runs for row in _rows(run, traced, measured[run.name], asked.traced)]
    with (asked.machine / "rescored.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} rows: {asked.machine / 'rescored.csv'}")
    return 0


def _rows(run: Run, traced: dict[str, Any], measured: dict[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    row, traces = traced["runs"][run.name]["run"], folder / "traces"
    names = [name for name in run.optimizations if "error" not in measured.get(name, {"error": ""})]
    if "error" in row or not names:
        return
    with tempfile.TemporaryDirectory() as beside:
        plain = traces / f"{run.name}.json.gz"
        ranges = stated(traces / f"{run.name}.ranges.json.gz", run, row, traced["machine"], Path(beside))
        for evidence, path in (("trace", plain), ("capture", ranges)):
            _, base = start(cache.load(path))
            for name in names if base else ():
                took = measured[name]
                yield {"run": run.name, "evidence": evidence, "optimization": name, **_predicted(base, name, took)}


def _predicted(base: Baseline, name: str, measured: dict[str, Any]) -> dict[str, Any]:
    gain, step_ms = measured["speedup"]["median"], measured["after_ms"]["median"]
    absent = dict.fromkeys(("low", "expected", "high", "after_us", *_SOURCES), "")
    row = {"measured": gain, "measured_after_us": round(1e3 * step_ms, 1), **absent, "refused": ""}
    try:
        optimization = parse(name)
        row["refused"] = refusal(optimization, base) or ""
    except TracekitError as why:
        row["refused"] = str(why)
    if row["refused"]:
        return row
    before, after = unchanged(base, HOST_LOGS), scenarios(optimization, base, HOST_LOGS)
    predicted, held = speedup(before, after), sources(before, after)
    values = (*held.outcome, *held.host.values())
    numbers = {"low": predicted.low, "expected": predicted.expected, "high": predicted.high}
    numbers |= {"after_us": base.unprofiled_ns * math.exp(-math.log(predicted.expected / after.work)) / 1e3}
    return row | {key: f"{number:.4g}" for key, number in (numbers | dict(zip(_SOURCES, values, strict=True))).items()}


_SOURCES = ("outcome_down", "outcome_up", *(f"host_{log:+g}" for log in HOST_LOGS))


if __name__ == "__main__":
    sys.exit(main())
