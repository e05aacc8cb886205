"""The crossovers of a sweep as sentences, and its rows as a table for a terminal."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tracekit.analyzers.crossovers import NONE, Crossover, crossovers
from tracekit.reports.console import paragraph, printed
from tracekit.reports.numbers import ABSENT, duration, percent, quantity, significant, times

HEAD = ("GPU", "batch", "tokens", "apply", "step", "per second", "speed-up", "memory", "idle")
MODELLED = "Modelled: every number is a prediction; nothing was measured."
_MOST_ROWS = 60


def sentences(sweep: pd.DataFrame) -> list[str]:
    """Return a sentence for each crossover, then one for each reason why something cannot be applied."""
    return [*dict.fromkeys(_sentence(each) for each in crossovers(sweep)), *_refusals(sweep)]


def _sentence(change: Crossover) -> str:
    at = f"{change.at:,} tokens" if change.axis == "seq_len" else f"batch {change.at:,}"
    where = f" at {_other(change)}" if change.other or change.axis == "seq_len" else ""
    if change.kind == "fits up to":
        largest = f"Batch {change.at:,} is the largest that fits" if change.at else "Not even batch 1 fits"
        return f"{largest} on {change.gpu}{where}."
    if change.kind == "host up to":
        return f"The host stops mattering at {at}{where} on {change.gpu}."
    return f"{change.apply} {change.kind} {at}{where} on {change.gpu} ({times(change.gain, change.gain)} there)."


def _other(change: Crossover) -> str:
    return f"batch {change.other:,}" if change.axis == "seq_len" else f"{change.other:,} tokens"


def _refusals(sweep: pd.DataFrame) -> list[str]:
    refused = sweep[sweep["refused"] != ""]
    points: dict[Any, int] = sweep.groupby(["gpu", "apply"], sort=False).size().to_dict()
    lines = []
    for (gpu, apply, why), rows in refused.groupby(["gpu", "apply", "refused"], sort=False):
        everywhere = "" if len(rows) == points[gpu, apply] else f" at {len(rows)} of {points[gpu, apply]} points"
        lines.append(f"{apply} cannot be applied on {gpu}{everywhere}: {why}")
    return lines


def cells(sweep: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the cells of each row, as `HEAD` names them."""
    return [_cells(row) for row in sweep.itertuples(index=False)]


def _cells(row: object) -> tuple[str, ...]:
    values = row._asdict()  # type: ignore[attr-defined]
    point = (values["gpu"], f"{values['batch_size']:,}", f"{values['seq_len']:,}", values["apply"])
    if values["refused"]:
        return (*point, ABSENT, ABSENT, "refused", ABSENT, ABSENT)
    gain = times(values["speedup"], values["speedup"]) if values["apply"] != NONE else ABSENT
    memory = quantity(values["memory_bytes"], "B") + ("" if values["fits"] else ", too much")
    speed = (duration(values["latency_ns"] / 1e3), significant(values["rate"]), gain)
    return (*point, *speed, memory, percent(values["idle_share"]))


def to_text(sweep: pd.DataFrame, *, width: int | None = None) -> str:
    """Return the crossovers and the rows, the first of many. `width` is in columns."""
    return printed(lambda columns: _text(sweep, columns), width=width, colour=False)


def _text(sweep: pd.DataFrame, width: int) -> Group:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in HEAD:
        table.add_column(name, justify="left" if name in ("GPU", "apply") else "right", no_wrap=True)
    for row in cells(sweep.head(_MOST_ROWS)):
        table.add_row(*map(Text, row))
    more = [f"{len(sweep) - _MOST_ROWS:,} more rows are in sweep.csv."] if len(sweep) > _MOST_ROWS else []
    lines: Sequence[str] = [*sentences(sweep), *more, MODELLED]
    return Group(table, *(paragraph(line, width) for line in lines))
