"""Finds the calls of a group's ranks that belong together, by their sequence numbers or else by their order."""

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]

UNEVEN = ("all-to-all", "send-receive")
"""Kinds whose messages may differ in size between ranks."""
_LEAST_ALIKE = 0.5
"""Smallest fraction of a rank's calls that must match within their steps; otherwise steps are ignored."""
_MOST_CELLS = 1 << 26
"""Sequences longer than this are matched only within steps."""


def keyed(calls: pd.DataFrame) -> pd.DataFrame:
    """Return the calls of one group with a column `key`, which is equal for calls that belong together.

    Each rank numbers its own sends and receives, so these are matched by their order from source to target.
    """
    calls = calls.sort_values(["rank", "start_ns"], kind="stable")
    between = (calls["source"] >= 0).to_numpy()
    if not between.any():
        return _keyed(calls)
    nth = calls[between].groupby(["rank", "source", "target"], sort=False).cumcount()
    key, _ = pd.factorize(pd.MultiIndex.from_frame(calls.loc[between, ["source", "target"]].assign(nth=nth)))
    pairs = calls[between].assign(key=-1 - key)
    return pairs if between.all() else pd.concat([_keyed(calls[~between]), pairs])


def _keyed(calls: pd.DataFrame) -> pd.DataFrame:
    """Return the calls with a column `key` of at least 0.

    Without sequence numbers, calls are matched by their order within each kind and size if all ranks made equally many;
    otherwise by the longest common subsequence with the rank that made the most calls.
    """
    if (calls["sequence"] >= 0).all():
        nth = calls.groupby(["rank", "sequence"], sort=False).cumcount().to_numpy()
        return calls.assign(key=nth + (calls["sequence"].to_numpy() << 20))
    what = _what(calls)
    counts = pd.crosstab(calls["rank"].to_numpy(), what)
    if (counts == counts.iloc[0]).to_numpy().all():
        nth = calls.groupby([calls["rank"].to_numpy(), what], sort=False).cumcount().to_numpy()
        return calls.assign(key=pd.factorize(pd.MultiIndex.from_arrays([what, nth]))[0])
    return calls.assign(key=_by_common_sequence(calls["rank"].to_numpy(), what, calls["step"].to_numpy()))


def _what(calls: pd.DataFrame) -> Ints:
    """Number each combination of kind, dtype and message size."""
    size = calls["bytes"].where(~calls["kind"].isin(UNEVEN), 0)
    return calls.assign(size=size).groupby(["kind", "dtype", "size"], sort=False).ngroup().to_numpy().astype(np.int64)


def _by_common_sequence(rank: Ints, what: Ints, step: Ints) -> Ints:
    first = np.flatnonzero(np.r_[True, rank[1:] != rank[:-1]])
    parts = np.split(np.arange(len(rank)), first[1:])
    usual = max(parts, key=len)
    key = np.full(len(rank), -1, dtype=np.int64)
    key[usual] = np.arange(len(usual))
    for mine in parts:
        if mine is not usual:
            key[mine] = _matched(what[usual], step[usual], what[mine], step[mine])
    return _with_leftovers(key, rank, what, step)


def _matched(usual: Ints, usual_step: Ints, mine: Ints, step: Ints) -> Ints:
    """Return the position of each call's counterpart in the usual sequence; -1 for none."""
    places = np.full(len(mine), -1, dtype=np.int64)
    for number in np.unique(step):
        theirs, ours = np.flatnonzero(usual_step == number), np.flatnonzero(step == number)
        at = common(usual[theirs], mine[ours])
        places[ours] = np.where(at >= 0, np.append(theirs, -1)[at], -1)
    if (places >= 0).mean() >= _LEAST_ALIKE or len(usual) * len(mine) > _MOST_CELLS:
        return places
    return max(places, common(usual, mine), key=lambda at: np.count_nonzero(at >= 0))


def common(usual: Ints, mine: Ints) -> Ints:
    """Return the longest common subsequence: for each element of `mine`, its position in `usual`, or -1."""
    if np.array_equal(usual, mine):
        return np.arange(len(mine))
    length = np.zeros((len(mine) + 1, len(usual) + 1), dtype=np.int32)
    for row, element in enumerate(mine):
        with_it = length[row, :-1] + (usual == element)
        length[row + 1, 1:] = np.maximum.accumulate(np.maximum(length[row, 1:], with_it))
    places = np.full(len(mine), -1, dtype=np.int64)
    row, column = len(mine), len(usual)
    while row and column:
        if length[row, column] == length[row - 1, column]:
            row -= 1
        elif length[row, column] == length[row, column - 1]:
            column -= 1
        else:
            row, column = row - 1, column - 1
            places[row] = column
    return places


def _with_leftovers(key: Ints, rank: Ints, what: Ints, step: Ints) -> Ints:
    """Match the calls without a counterpart in the usual sequence among themselves, by kind, size and step.

    They include the usual rank's calls that no other rank matched, so that calls in another order find each other.
    """
    alone = (key < 0) | (np.bincount(np.maximum(key, 0), weights=key >= 0, minlength=len(key))[np.maximum(key, 0)] == 1)
    rest = pd.DataFrame({"rank": rank[alone], "what": what[alone], "step": step[alone]})
    nth = rest.groupby(["rank", "what", "step"], sort=False).cumcount()
    rest_key, _ = pd.factorize(pd.MultiIndex.from_arrays([rest["what"], rest["step"], nth]))
    key = key.copy()
    key[alone] = len(key) + rest_key
    return key
