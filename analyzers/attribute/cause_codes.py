"""Encodes causes as small integers, which need less memory than words in tables with a row for every gap."""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.results import CAUSES

Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float64]

UNKNOWN = ""
"""The launch of the work is not recorded."""
COMPUTING = "computing"
"""Kind of an op outside the model that launches nothing; it is preprocessing if it takes long enough. It is not the
cause of a gap."""
WORDS = (*CAUSES, UNKNOWN, COMPUTING)
CODE = {word: np.int8(code) for code, word in enumerate(WORDS)}


def first_true(tests: Mapping[str, Bools], default: str | Codes) -> Codes:
    """Return the code of the first test that is true, else the default."""
    otherwise = CODE[default] if isinstance(default, str) else default
    return np.select(list(tests.values()), [CODE[cause] for cause in tests], otherwise)


def is_any(codes: Codes, causes: Iterable[str]) -> Bools:
    """Return which codes are one of these causes."""
    chosen = np.zeros(len(WORDS), dtype=bool)
    chosen[[CODE[cause] for cause in causes]] = True
    return chosen[codes]


def categorical(codes: Codes) -> "pd.Categorical[str]":
    """Return the causes as a categorical column."""
    return pd.Categorical.from_codes(codes, categories=pd.Index(WORDS[:-1]))


def codes_of(causes: pd.Series) -> Codes:
    """Return the codes of a column that `categorical` made."""
    return np.asarray(causes.cat.codes, dtype=np.int8)


def sums_by(ns: npt.NDArray, *keys: npt.NDArray) -> tuple[Floats, tuple[npt.NDArray[np.intp], ...]]:
    """Return the sums of times with equal keys, and these keys in order. Keys are integers from 0."""
    if not len(ns):
        return np.zeros(0), tuple(np.zeros(0, dtype=np.intp) for _ in keys)
    sizes = [int(key.max()) + 1 for key in keys]
    packed = np.ravel_multi_index([key.astype(np.intp) for key in keys], sizes)
    order = np.argsort(packed, kind="stable")  # Stable sort is fast on almost ordered data.
    packed = packed[order]
    first = np.flatnonzero(np.diff(packed, prepend=-1))
    return np.add.reduceat(ns[order].astype(np.float64), first), np.unravel_index(packed[first], sizes)
