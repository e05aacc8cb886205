"""The evidence of recommendations: values of tables. `reports/words/wording.py` puts them into words."""

import msgspec

from tracekit.analyzers.core import TABLES, Column, Table

STEP = Table(
    "step",
    "One row: the step that predictions start from, without the profiler. Recommendations quote its values.",
    Column("latency_ns", "float64", "ns", "latency without the profiler: measured, modelled or estimated"),
    Column("busy_ns", "float64", "ns", "time in which the GPU is busy; overlapping work counts once"),
    Column("idle_share", "float64", "", "part of the latency in which the GPU is idle, 0 to 1"),
    Column("launches", "int64", "", "pieces of device work"),
    Column("launch_host_ns", "float64", "ns", "mean host time of a launch"),
    Column("kernel_ns", "float64", "ns", "duration of kernels, summed"),
    Column("share", "float64", "", "part of the duration of all kernels, 0 to 1"),
    Column("bytes", "float64", "B", "bytes moved or held"),
    Column("link_bytes", "float64", "B/s", "rate of a link"),
    Column("outside_ns", "float64", "ns", "host time outside the model"),
    Column("outside_share", "float64", "", "part of the latency that is host time outside the model, 0 to 1"),
    Column("rows", "int64", "", "rows of a GEMM's output: sequences times tokens"),
    Column("weights", "float64", "", "weights of a layer"),
    Column("bytes_per_weight", "float64", "B", "bytes of a weight"),
    Column("batch", "int64", "", "sequences in a step"),
    Column("tokens", "float64", "", "tokens"),
    Column("ratio", "float64", "", "factor between two values"),
    Column("precision", "object", "", "type of the arithmetic"),
    Column("name", "object", "", "name of a kernel, an optimization, or a GPU"),
)


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
        return next(column.unit for column in TABLES[self.table].columns if column.name == self.column)


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
