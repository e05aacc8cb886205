"""Joins the rows and the traces of the pieces of a round; reads, splits and writes its plan.

    python -m benchmarks blind.plan OUT PIECE...

PIECE is the OUT folder of a call of measure.py with --piece. OUT/traced.json and OUT/measured.json hold the runs of all
pieces, OUT/traces their traces. A run that several pieces hold is taken from the last one.
"""

import argparse
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

_RECORDS = ("traced.json", "measured.json")


@dataclass(frozen=True)
class Run:
    name: str
    model: str
    workload: str
    """prefill (one forward pass), decode (one token on a filled cache) or train."""
    batch: int
    length: int
    """Tokens in a sequence; 0 for models whose inputs have a fixed size."""
    dtype: str
    attention: str
    """eager or sdpa; "" for models that have no choice."""
    optimizations: tuple[str, ...]
    """Ids of optimizations; combinations are joined with "+"."""


@dataclass(frozen=True)
class Plan:
    seed: int
    held_out: bool
    runs: tuple[Run, ...]

    @property
    def rows(self) -> int:
        return sum(len(run.optimizations) for run in self.runs)


_SECONDS = {"compile": 30, "": 8}
"""Seconds on an H100 for a row that compiles, and for any other row."""


def in_pieces(runs: tuple[Run, ...], pieces: int) -> list[list[Run]]:
    """Split the runs into parts that take about equally long. Each part is in the plan's order."""
    parts: list[list[Run]] = [[] for _ in range(pieces)]
    for run in sorted(runs, key=_seconds, reverse=True):
        min(parts, key=lambda part: sum(map(_seconds, part))).append(run)
    return [sorted(part, key=runs.index) for part in parts]


def _seconds(run: Run) -> int:
    return sum(_SECONDS["compile" if "compile" in name.split("+") else ""] for name in run.optimizations)


def read(path: Path) -> Plan:
    held = json.loads(path.read_text(encoding="utf-8"))
    runs = (Run(**{**run, "optimizations": tuple(run["optimizations"])}) for run in held["runs"])
    return Plan(held["seed"], held["held_out"], tuple(runs))


def write(plan: Plan, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(plan), indent=1) + "\n", encoding="utf-8")


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
