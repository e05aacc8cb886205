"""Matches the kernels of a trace to measured launches.

They match by name, blocks and threads per block. Among equal kernels, the k-th in the trace matches the k-th measured,
starting over after the last, because a report usually contains one step, or some layers, of a trace. Names are first
compared with their template arguments, then without.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.counters import normalized_names

Ints = npt.NDArray[np.int64]

_KEY = ["name", "blocks", "threads_per_block"]


def match(kernels: pd.DataFrame, counters: pd.DataFrame) -> Ints:
    """Return the row in COUNTERS for each row of DEVICE; -1 if it was not measured, or is not a kernel."""
    row = np.full(len(kernels), -1, dtype=np.int64)
    for form in (normalized_names.full, normalized_names.base):
        wanted = np.flatnonzero((row < 0) & (kernels["category"] == "kernel").to_numpy())
        measured = np.setdiff1d(np.arange(len(counters)), row)
        position = _match_as(_keyed(kernels.iloc[wanted], form), _keyed(counters.iloc[measured], form))
        row[wanted] = np.append(measured, -1)[position]
    return row


def _match_as(kernels: pd.DataFrame, launches: pd.DataFrame) -> Ints:
    """Return positions in the launches; -1 for none."""
    by_turn = launches.drop(columns="device").assign(turn=launches.groupby(_KEY).cumcount())
    by_turn["position"] = np.arange(len(launches))
    size = launches.groupby(_KEY).size().rename("size").reset_index()
    turn = kernels.groupby([*_KEY, "device"]).cumcount()
    wanted = kernels.assign(turn=turn).merge(size, on=_KEY, how="left")
    wanted["turn"] = (wanted["turn"] % wanted["size"]).fillna(-1).astype(np.int64)
    position = wanted.merge(by_turn, on=[*_KEY, "turn"], how="left")["position"]
    return position.fillna(-1).to_numpy(np.int64)


def _keyed(launches: pd.DataFrame, form: Callable[[str], str]) -> pd.DataFrame:
    codes, distinct = pd.factorize(launches["name"])
    forms = np.array([*(form(str(name)) for name in distinct), ""], dtype=object)
    return launches[["blocks", "threads_per_block", "device"]].assign(name=forms[codes]).reset_index(drop=True)
