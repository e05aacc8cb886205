"""Make the table `PROBLEMS` from the problems that occurred.

A problem is a row of data, shown in every output.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from tracekit.analyzers.problem_kinds import KINDS, Problem
from tracekit.analyzers.trace import PROBLEMS


@dataclass(frozen=True)
class Found:
    """A problem that occurred `count` times."""

    problem: Problem
    count: int
    detail: str

    def row(self) -> tuple[str, str, int, str, str]:
        plural = "" if self.count == 1 else "s"
        were = "was" if self.count == 1 else "were"
        message = self.problem.message.format(count=f"{self.count:,}", s=plural, were=were, detail=self.detail)
        return self.problem.code, self.problem.severity, self.count, message.strip(), self.problem.advice


def found(code: str, count: int = 1, detail: str = "") -> Found:
    """Returns an occurrence of a registered problem. Raises KeyError for an unknown code."""
    return Found(KINDS[code], count, detail)


def table(rows: Iterable[Found]) -> pd.DataFrame:
    """Makes the table PROBLEMS; problems that occurred zero times are left out."""
    return _frame(f.row() for f in rows if f.count > 0)


def concat(*tables: pd.DataFrame) -> pd.DataFrame:
    """Joins several tables PROBLEMS; a row that occurs twice is kept once."""
    rows = (row for t in tables for row in t.itertuples(index=False, name=None))
    return _frame(dict.fromkeys(rows))


def _frame(rows: Iterable[tuple[str, str, int, str, str]]) -> pd.DataFrame:
    columns: Iterator[tuple] = zip(*rows, strict=True)
    values = list(columns) or [()] * len(PROBLEMS.columns)
    return PROBLEMS.frame({c.name: list(v) for c, v in zip(PROBLEMS.columns, values, strict=True)})
