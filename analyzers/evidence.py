"""What a recommendation rests on: values of tables. `reports/sentences.py` has the words for them."""

from dataclasses import dataclass

from tracekit.analyzers.schema import TABLES, Column, Table

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
    Column("rows", "int64", "", "rows of a product's output: sequences times tokens"),
    Column("weights", "float64", "", "weights of a layer"),
    Column("bytes_per_weight", "float64", "B", "bytes of a weight"),
    Column("batch", "int64", "", "sequences in a step"),
    Column("tokens", "float64", "", "tokens"),
    Column("ratio", "float64", "", "how many times as much"),
    Column("precision", "object", "", "type of the arithmetic"),
    Column("name", "object", "", "name of a kernel, an optimization, or a GPU"),
)


@dataclass(frozen=True)
class Evidence:
    """A value that a statement quotes, and the cell of a table that it is about."""

    role: str
    """Its name in the statement's words."""
    value: int | float | str
    """Of one step, where the table sums over all steps of the trace."""
    table: str
    """Name of a table of the analysis, or "step"."""
    column: str
    row: str = ""
    """Key of the row; "": several rows, or the only one."""

    @property
    def unit(self) -> str:
        """Unit of the column."""
        return next(column.unit for column in TABLES[self.table].columns if column.name == self.column)


@dataclass(frozen=True)
class Statement:
    """One thing that is said about a run: what kind of statement, and the values in it."""

    kind: str
    evidence: tuple[Evidence, ...] = ()


Statements = tuple[Statement, ...]


def say(kind: str, *evidence: Evidence) -> Statement:
    """A statement of that kind."""
    return Statement(kind, evidence)


def of_step(role: str, column: str, value: float | str) -> Evidence:
    """A value of the step that predictions start from."""
    return Evidence(role, value, "step", column)
