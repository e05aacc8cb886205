"""The grid of a sweep."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tracekit.analyzers import hardware
from tracekit.analyzers.crossovers import NONE
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.hardware import GPU
from tracekit.capture.settings import Settings
from tracekit.optimizations import parse

MOST_POINTS = 2_000


@dataclass(frozen=True)
class Grid:
    """Each GPU with each batch size, length and combination of optimizations. `settings` are common to all points."""

    settings: Settings
    gpus: Sequence[GPU]
    batch_sizes: Sequence[int]
    seq_lens: Sequence[int]
    apply: Sequence[str]
    """Names joined with +; the first is "none"."""

    def __len__(self) -> int:
        return len(self.gpus) * len(self.batch_sizes) * len(self.seq_lens) * len(self.apply)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield each length with each batch size."""
        for length in self.seq_lens:
            for batch in self.batch_sizes:
                yield length, batch


def grid(
    settings: Settings, gpus: Sequence[str], batch_sizes: Sequence[int], seq_lens: Sequence[int], apply: Sequence[str]
) -> Grid:
    """Check and order the axes. Raises TracekitError for an unknown GPU or optimization, or too many points."""
    names = [NONE, *(name for name in dict.fromkeys(apply) if name != NONE)]
    for name in names[1:]:
        parse(name)
    known = [hardware.find(name) for name in dict.fromkeys(gpus)]
    made = Grid(settings, known, sorted(set(batch_sizes)), sorted(set(seq_lens)) or [0], names)
    if len(made) > MOST_POINTS:
        raise InputError(
            f"The sweep has {len(made):,} points.", f"It may have up to {MOST_POINTS:,}.", "Leave some values out."
        )
    return made


def ordered(points: pd.DataFrame, grid: Grid) -> pd.DataFrame:
    """Return the rows in the order of the grid, each point's measurement after its prediction."""
    orders = {"gpu": [*(gpu.id for gpu in grid.gpus), *points["gpu"]], "apply": list(grid.apply)}

    def places(column: "pd.Series[Any]") -> "pd.Series[Any]":
        return column.map(orders[str(column.name)].index) if column.name in orders else column

    return points.sort_values(["gpu", "seq_len", "batch_size", "apply"], key=places, ignore_index=True)
