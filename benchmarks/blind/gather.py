"""Joins the rows and the traces of the pieces of a round.

    python -m benchmarks blind.gather OUT PIECE...

PIECE is the OUT folder of a call of measure.py with --piece. OUT/traced.json and OUT/measured.json hold the runs of all
pieces, OUT/traces their traces. A run that several pieces hold is taken from the last one.
"""

import argparse
import json
import shutil
from pathlib import Path

_RECORDS = ("traced.json", "measured.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("pieces", type=Path, nargs="+")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in _RECORDS:
        files = [piece / name for piece in asked.pieces if (piece / name).is_file()]
        if files:
            (asked.out / name).write_text(json.dumps(joined(files), indent=1) + "\n", encoding="utf-8")
    for trace in (trace for piece in asked.pieces for trace in piece.glob("traces/*.json.gz")):
        (asked.out / "traces").mkdir(exist_ok=True)
        shutil.copyfile(trace, asked.out / "traces" / trace.name)


def joined(files: list[Path]) -> dict[str, object]:
    """Return the record of all runs. Pieces from different machines are refused."""
    records = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    machines = {(record["machine"]["gpu"], record["machine"]["cpu"]) for record in records}
    if len(machines) > 1:
        raise SystemExit(f"The pieces were made on different machines: {sorted(machines)}.")
    runs = {name: rows for record in records for name, rows in record["runs"].items()}
    return {**records[0], "runs": dict(sorted(runs.items()))}


if __name__ == "__main__":
    main()
