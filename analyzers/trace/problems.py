"""Problems of a trace: each is a row of the table `PROBLEMS`, which every output shows; kinds are in problems.toml."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
import pandas as pd

from tracekit.analyzers.core import toml_table
from tracekit.analyzers.trace.trace import PROBLEMS

_ONE_OR_MANY = re.compile(r"\{([^{}|]*)\|([^{}|]*)\}")


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of problem. The placeholders of a message are explained in problems.toml."""

    severity: Literal["info", "warning", "error"]
    message: str
    advice: str


KINDS = toml_table(Path(__file__).with_name("problems.toml"))
"""The kinds by their code, as rows."""


@cache
def _kind(code: str) -> Kind:
    return msgspec.convert(KINDS[code], Kind)


class Problem(msgspec.Struct, frozen=True):
    """A problem that occurred `count` times."""

    code: str
    count: int
    detail: str

    def row(self) -> tuple[str, str, int, str, str]:
        """Return a row of `PROBLEMS`: code, severity, count, message and advice."""
        kind, one = _kind(self.code), self.count == 1
        agreed = _ONE_OR_MANY.sub(r"\1" if one else r"\2", kind.message)
        words = {"count": f"{self.count:,}", "s": "" if one else "s", "were": "was" if one else "were"}
        message = agreed.format(**words, detail=self.detail)
        return self.code, kind.severity, self.count, message.strip(), kind.advice


def problem(code: str, count: int = 1, detail: str = "") -> Problem:
    """Return a problem of a registered kind. Raises KeyError for an unknown code."""
    if code not in KINDS:
        raise KeyError(code)
    return Problem(code, count, detail)


def table(problems: Iterable[Problem]) -> pd.DataFrame:
    """Return the table `PROBLEMS`, without the problems that occurred zero times."""
    return _frame(each.row() for each in problems if each.count > 0)


def concat(*tables: pd.DataFrame) -> pd.DataFrame:
    """Join several tables `PROBLEMS`; a row that occurs in more than one is kept once."""
    rows = (row for t in tables for row in t.itertuples(index=False, name=None))
    return _frame(dict.fromkeys(rows))


def _frame(rows: Iterable[tuple[str, str, int, str, str]]) -> pd.DataFrame:
    columns: Iterator[tuple] = zip(*rows, strict=True)
    values = list(columns) or [()] * len(PROBLEMS.columns)
    return PROBLEMS.frame({c.name: list(v) for c, v in zip(PROBLEMS.columns, values, strict=True)})
