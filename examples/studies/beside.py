"""Runs a study (or takes up what its folder holds), and prints its rows beside published ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tracekit.cli._options import say
from tracekit.measure import BenchGrid, Row, bench
from tracekit.run import Settings

Published = Mapping[tuple[str, str], float]


def run(models: Sequence[str], configurations: Sequence[str], folder: str) -> list[Row]:
    """One token at a time, batch 1, on a cache of 100 tokens, on the GPU of this machine."""
    settings = Settings(model="", workload="decode", device="cuda")
    return bench(BenchGrid(models, configurations, [1], [100], settings), Path(folder), say)


def show(rows: Sequence[Row], published: Published, where: str) -> None:
    """Tokens per second and the speed-up over the first configuration, here and there."""
    table = Table(title=f"Measured here, and published of {where}")
    for name in ("model", "configuration", "tokens/s here", "tokens/s there", "× here", "× predicted", "× there", "GB"):
        table.add_column(name, justify="left" if name in ("model", "configuration") else "right")
    for row in rows:
        there, first = published.get((row.model, row.config)), published.get((row.model, row.first))
        table.add_row(
            row.model,
            row.config,
            _number(row.items_per_s, 1),
            _number(there, 1),
            _number(row.speedup, 2),
            f"{row.predicted_low:.2f}–{row.predicted_high:.2f}" if row.predicted_low and row.predicted_high else "–",
            _number(there / first if there and first else None, 2),
            _number(row.peak_memory_bytes / 1e9 if row.peak_memory_bytes else None, 2),
        )
    Console().print(table)
    for row in rows:
        if row.error:
            print(f"{row.model}, {row.config}: {row.error}")


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
