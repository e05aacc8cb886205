"""The steps that all ranks have: their begin and end on the job's clock, and the ranks' own time there."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.ranks.clocks import Clocks
from tracekit.analyzers.ranks.summary import RankSummary

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StepWindows:
    first: list[int]
    """The step of each rank that is the job's step 0."""
    steps: int
    start: Floats
    """Start of each rank's first step."""
    end: Floats
    """End of each step, as ranks × steps."""
    own_first: Floats
    own_step: Floats
    """Own time until the end of each step, as ranks × steps."""
    device_first: Floats
    device_step: Floats
    synced: Floats
    """As in RANK_STEPS, as ranks × steps."""

    def numbered(self, calls: pd.DataFrame) -> pd.DataFrame:
        """Return the calls in these steps, with the job's number of their step."""
        step = calls["step"].to_numpy() - np.asarray(self.first)[calls["rank"].to_numpy()]
        inside = (calls["step"].to_numpy() >= 0) & (step >= 0) & (step < self.steps)
        return calls.assign(step=np.where(inside, step, -1))[inside].reset_index(drop=True)


def windows(ranks: Sequence[RankSummary], calls: pd.DataFrame, clocks: Clocks) -> StepWindows:
    """Find the common steps from matched `calls`. A collective belongs to the same step of the job on all ranks,
    however they number it.

    Raises InputError if the ranks have no step in common.
    """
    first = _first_steps(len(ranks), calls)
    steps = min((len(rank.steps) - at for rank, at in zip(ranks, first, strict=True)), default=0)
    if steps < 1:
        raise InputError(
            "The traces have no step in common.",
            "Some traces contain no steps, or they were recorded at different times.",
            "Record the same steps on all ranks.",
        )
    rows = [rank.steps.iloc[at : at + steps] for rank, at in zip(ranks, first, strict=True)]
    begin = np.array([table["start_ns"] + rank.base_ns for table, rank in zip(rows, ranks, strict=True)])
    end = begin + np.array([table["wall_ns"] for table in rows])
    number = np.arange(len(ranks))
    return StepWindows(
        first,
        steps,
        clocks.corrected(number, begin[:, 0]),
        np.stack([clocks.corrected(number, end[:, step]) for step in range(steps)], axis=1),
        np.array([table["own_start_ns"].iloc[0] for table in rows], dtype=float),
        np.array([table["own_end_ns"] for table in rows], dtype=float),
        np.array([table["device_start_ns"].iloc[0] for table in rows], dtype=float),
        np.array([table["device_end_ns"] for table in rows], dtype=float),
        np.array([table["synced_ns"] for table in rows], dtype=float),
    )


def _first_steps(ranks: int, calls: pd.DataFrame) -> list[int]:
    """Return the number of steps that each rank recorded before the last one began."""
    inside = calls[calls["step"] >= 0]
    usual = inside.groupby("call")["step"].transform("median")
    ahead = (inside["step"] - usual).groupby(inside["rank"]).median().reindex(range(ranks)).fillna(0.0)
    return (ahead - ahead.min()).round().astype(int).tolist()
