"""The plan of a round: its runs, each with the optimizations to predict and then to measure."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


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
