"""Predicts every measured row of a plan again, with the latency of the unmodified run when the row was measured.

    python -m benchmarks blind.predict_beside ROUND/MACHINE PLAN TRACED

TRACED is the OUT folder of measure.py --trace-only. A host's speed changes between tracing and measuring, which the
predictions made before cannot know; `tracekit verify` predicts again for the same reason. Of measured.json, the
latency of the unmodified run is used and nothing else. Writes ROUND/MACHINE/beside.csv, before anything is mended.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.blind.plan import Run, read
from benchmarks.blind.predict import Predicted, gain, stated, write


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machine", type=Path)
    parser.add_argument("plan", type=Path)
    parser.add_argument("traced", type=Path)
    asked = parser.parse_args()
    measured = json.loads((asked.machine / "measured.json").read_text(encoding="utf-8"))["runs"]
    traced = json.loads((asked.traced / "traced.json").read_text(encoding="utf-8"))
    rows = [
        row for run in read(asked.plan).runs for row in _rows(run, traced, measured.get(run.name, {}), asked.traced)
    ]
    write(rows, asked.machine / "beside.csv")
    print(f"{len(rows)} rows: {asked.machine / 'beside.csv'}")
    return 0


def _rows(run: Run, traced: dict[str, Any], measured: dict[str, Any], folder: Path) -> Iterator[Predicted]:
    recorded = traced["runs"][run.name]["run"]
    for name, row in measured.items():
        if "error" in row or "error" in recorded:
            continue
        told = {key: value for key, value in recorded.items() if key != "again_ms"} | {"step_ms": row["before_ms"]}
        with tempfile.TemporaryDirectory() as beside:
            trace = stated(folder / "traces" / f"{run.name}.ranges.json.gz", run, told, traced["machine"], Path(beside))
            yield gain(trace, Predicted(run.name, name, "beside"))


if __name__ == "__main__":
    sys.exit(main())
