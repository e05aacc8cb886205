"""The tables of an analysis (tables.toml has their columns), and values of them as the evidence of recommendations.

`reports/words/wording.py` puts evidence into words.
"""

import msgspec

from tracekit.analyzers.core import TABLES, facts, tables

_TABLES = tables(__file__)
WORK = _TABLES["work"]
OPS = _TABLES["ops"]
KERNELS = _TABLES["kernels"]
PHASES = _TABLES["phases"]
COUNTERS_COMPARISON = _TABLES["counters_comparison"]
FUSION_PLAN = _TABLES["fusion_plan"]
PREDICTED_WORK = _TABLES["predicted_work"]
STEPS = _TABLES["steps"]
RANGES = _TABLES["ranges"]
PROJECTIONS = _TABLES["projections"]
SET_APART = _TABLES["set_apart"]
GAPS = _TABLES["gaps"]
IDLE_CAUSES = _TABLES["idle_causes"]
HOST_CAUSES = _TABLES["host_causes"]
HOST_SPANS = _TABLES["host_spans"]
LAYERS = _TABLES["layers"]
LAYER_TYPES = _TABLES["layer_types"]
LAYER_OPS = _TABLES["layer_ops"]
LAYER_PARTS = _TABLES["layer_parts"]
COUNTS = _TABLES["counts"]
PLACES = _TABLES["places"]
STEP = _TABLES["step"]

_FACTS = facts(__file__)
CAUSE_MEANINGS: dict[str, str] = _FACTS["causes"]
CAUSES = tuple(CAUSE_MEANINGS)
LAUNCHING = tuple(_FACTS["launching"])
"""Causes whose host time is that of launches."""
OUTSIDE_MODEL = tuple(_FACTS["outside_model"])
"""Causes whose host time does not change with the model's ops and their launches."""


START_UP, PAUSE, EARLIER_WORK, NOT_RECORDED = "start-up", "pause", "earlier work", "not recorded"


COUNTER_MEANINGS: dict[str, str] = _FACTS["counters"]
"""Counters of every run. Those named "kernels:FAMILY" count the kernels (or, on a CPU, ops) of a family."""

FAMILY_COUNTER = "kernels:"
"""Prefix of the counters by family."""


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
