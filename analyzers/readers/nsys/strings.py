"""Look up the strings of a report by id, and convert them to categories."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.readers.nsys.database import Database

Ints = npt.NDArray[np.int64]


class Strings:
    """The table StringIds."""

    def __init__(self, database: Database) -> None:
        rows = database.read("StringIds", {"id": -1}, required_texts=("value",))
        self._ids, first = np.unique(rows["id"], return_index=True)
        self._values = np.append(rows["value"][first], "")

    def of(self, ids: Ints) -> npt.NDArray[np.object_]:
        """Return the string of each id; "" for unknown ids."""
        at = np.searchsorted(self._ids, ids)
        known = at < len(self._ids)
        known[known] = self._ids[at[known]] == ids[known]
        return self._values[np.where(known, at, len(self._ids))]


def categories(codes: Ints, values: Sequence[str]) -> pd.Categorical:
    """Return a category for each row from codes into values, which may repeat."""
    number, distinct = pd.factorize(np.asarray([*values, ""], dtype=object)[:-1])
    return pd.Categorical.from_codes(number[codes] if len(number) else codes, pd.Index(distinct, dtype=object))


def constant(value: str, rows: int) -> pd.Categorical:
    return categories(np.zeros(rows, dtype=np.int64), [value])


def joined(parts: Sequence[pd.Categorical]) -> pd.Categorical:
    return pd.api.types.union_categoricals(list(parts))
