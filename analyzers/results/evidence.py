"""The evidence of recommendations: values of tables. `reports/words/wording.py` puts them into words."""

import msgspec

from tracekit.analyzers.core import TABLES
from tracekit.analyzers.results.tables import STEP


class Evidence(msgspec.Struct, frozen=True):
    """A value that a statement quotes, and the cell of the table that it comes from."""

    role: str
    """Name of the value in the statement's sentence."""
    value: int | float | str
    """The value per step, although the table may contain the sum over all steps of the trace."""
    table: str
    """Name of a table of the analysis, or "step"."""
    column: str
    row: str = ""
    """Key of the row; "" for several rows, or for the only one."""

    @property
    def unit(self) -> str:
        """Unit of the column."""
        table = STEP if self.table == STEP.name else TABLES[self.table]
        return next(column.unit for column in table.columns if column.name == self.column)


class Statement(msgspec.Struct, frozen=True):
    """A statement about a run: its kind, and the values in it."""

    kind: str
    evidence: tuple[Evidence, ...] = ()


Statements = tuple[Statement, ...]


def say(kind: str, *evidence: Evidence) -> Statement:
    """Return a statement of a kind."""
    return Statement(kind, evidence)


def of_step(role: str, column: str, value: float | str) -> Evidence:
    """Return a value of the step that predictions start from."""
    return Evidence(role, value, "step", column)
