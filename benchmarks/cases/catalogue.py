"""The cases as cases.toml has them; `python benchmarks/cases/catalogue.py` prints the table of README.md."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    name: str
    planted: str
    mend: str
    advice: tuple[str, ...]
    """Ids of right advice, the best first."""
    unit: str
    """What a script's step says how many of it has done."""
    steps: int
    """Recorded steps."""
    warm_up: int = 3
    """Steps before the first that is timed."""
    scheduled: bool = False
    with_stack: bool = False
    profile_memory: bool = False
    mended_by: str = ""
    """The advice with its argument, where the mend is another one than is advised by default."""
    projected_to: tuple[str, ...] = ()
    """GPUs that the slow variant does not fit on."""

    @property
    def script(self) -> str:
        return self.name.replace("-", "_")


def cases() -> dict[str, Case]:
    rows = tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8"))
    return {name: _case(name, row) for name, row in rows.items()}


def _case(name: str, row: dict) -> Case:
    lists = {key: tuple(row[key]) for key in ("advice", "projected_to") if key in row}
    return Case(**{"name": name, **row, **lists})


def table() -> str:
    head = ["| case | planted | mend | first advice |", "|---|---|---|---|"]
    rows = [
        f"| [{case.name}](scripts/{case.script}.py) | {case.planted} | {case.mend} | {_ids(case.advice)} |"
        for case in cases().values()
    ]
    return "\n".join([*head, *rows])


def _ids(advice: tuple[str, ...]) -> str:
    first, *others = (f"`{name}`" for name in advice)
    return f"{first}, or {', '.join(others)}" if others else first


if __name__ == "__main__":
    print(table())
