"""Finds ranges that a program or its tools record, by name."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers import ranges

Ints = npt.NDArray[np.int64]


class UserRanges:
    """Host rows of category range. Each distinct name is tested once."""

    def __init__(self, host: pd.DataFrame) -> None:
        self._rows = np.flatnonzero((host["category"] == "range").to_numpy())
        self._number, names = pd.factorize(host["name"].iloc[self._rows])
        self.names = [str(name) for name in names]

    def rows_of(self, wanted: Callable[[str], object]) -> Ints:
        """Return the rows whose name is `wanted`, in the order of the host table."""
        return self._rows[self._mask(wanted)]

    def names_of(self, wanted: Callable[[str], object]) -> list[str]:
        """Return the names of the rows of `rows_of`."""
        return [self.names[number] for number in self._number[self._mask(wanted)].tolist()]

    def is_ours(self, kind: str) -> Callable[[str], bool]:
        """Return a predicate for names of tracekit's ranges of a kind: step, phase or module."""
        return lambda name: (parsed := ranges.parse(name)) is not None and parsed[0] == kind

    def _mask(self, wanted: Callable[[str], object]) -> npt.NDArray[np.bool_]:
        return np.array([*(bool(wanted(name)) for name in self.names), False])[self._number]
