"""The cases of all sets; `python benchmarks/cases/catalogue.py SET` prints the table of one in README.md."""

import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SETS = {
    1: ("cases.toml", "scripts"),
    2: ("second.toml", "second"),
    3: ("third.toml", "third"),
    4: ("fourth.toml", "fourth"),
    5: ("fifth.toml", "fifth"),
    6: ("sixth.toml", "sixth"),
    7: ("seventh.toml", "seventh"),
    8: ("eighth.toml", "eighth"),
    9: ("ninth.toml", "ninth"),
}
"""The list of each set, and the folder of its scripts."""


@dataclass(frozen=True)
class Case:
    name: str
    folder: str
    planted: str
    fix: str
    advice: tuple[str, ...]
    """Ids of the correct advice, the best first."""
    unit: str
    """The items that a script's step counts, such as tokens."""
    steps: int
    """Number of recorded steps."""
    warm_up: int = 3
    """Number of steps before the first timed one."""
    round_s: float = 0.25
    """Seconds of a timed round; longer where batches that are made ahead would otherwise count."""
    scheduled: bool = False
    with_stack: bool = False
    profile_memory: bool = False
    fixed_by: str = ""
    """The advice with its argument, if the fixed script uses another argument than the default."""
    fixes: tuple[str, ...] = ()
    """Correct advice whose prediction is compared with the measured gain; all of it if empty."""
    projected_to: tuple[str, ...] = ()
    """GPUs whose memory is too small for the slow variant."""

    @property
    def module(self) -> str:
        return f"{self.folder}.{self.script}"

    @property
    def script(self) -> str:
        return self.name.replace("-", "_")

    @property
    def measured_ids(self) -> tuple[str, ...]:
        """Ids whose predictions are compared with the measured gain."""
        return self.fixes or self.advice


def cases(number: int = 1) -> dict[str, Case]:
    listed, folder = SETS[number]
    rows = tomllib.loads((HERE / listed).read_text(encoding="utf-8"))
    return {name: _case(name, folder, row) for name, row in rows.items()}


def _case(name: str, folder: str, row: dict) -> Case:
    lists = {key: tuple(row[key]) for key in ("advice", "fixes", "projected_to") if key in row}
    return Case(**{"name": name, "folder": folder, **row, **lists})


def table(number: int = 1) -> str:
    head = ["| case | planted | fix | first advice |", "|---|---|---|---|"]
    rows = [
        f"| [{case.name}]({case.folder}/{case.script}.py) | {case.planted} | {case.fix} | {_ids(case.advice)} |"
        for case in cases(number).values()
    ]
    return "\n".join([*head, *rows])


def _ids(advice: tuple[str, ...]) -> str:
    first, *others = (f"`{name}`" for name in advice)
    return f"{first}, or {', '.join(others)}" if others else first


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
