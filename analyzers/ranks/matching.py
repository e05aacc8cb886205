"""Matches the collectives of all ranks: finds which calls of which ranks are the same call of the job."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Ints
from tracekit.analyzers.ranks.summary import RankSummary

PAIRED = {"send": "send-receive", "receive": "send-receive"}
WORLD = "(all ranks)"


@dataclass(frozen=True)
class Group:
    """A group of ranks that communicate: its name, its members as recorded, and the positions of those that have traces
    or make its calls."""

    name: str
    ranks: Sequence[int]
    traced: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Matched:
    """The calls of all ranks, one row per call and rank, in order of `call`, the number of the job's call."""

    calls: pd.DataFrame = field(repr=False)
    """Columns of RANK_CALLS with rank (position), group, call, and the source and target of a send, as numbers in the
    job (-1: not recorded). Times are absolute, on the rank's clock."""
    groups: tuple[Group, ...]
    missing: pd.DataFrame = field(repr=False)
    """Columns rank, group, kind and count of calls that other ranks of the group made, but not this rank."""
    uneven: pd.DataFrame = field(repr=False)
    """Columns rank, group, kind and count of calls whose size differs from that on most ranks."""

    def without(self, wrong: npt.NDArray[np.bool_]) -> "Matched":
        """Return the same calls without the rows that `wrong` selects."""
        return replace(self, calls=self.calls[~wrong].reset_index(drop=True))


def match(ranks: Sequence[RankSummary], numbers: Sequence[int]) -> Matched:
    """Match calls by group and sequence number or, without sequence numbers, by order.

    Sends and receives are matched by their order between source and target. `numbers` are the ranks' numbers in the
    job.
    """
    calls = _all_calls(ranks)
    calls["group"], groups = _group_numbers(calls, _groups_of(ranks, numbers), numbers)
    members = np.array([len(group.traced) for group in groups], dtype=np.int64)
    calls = calls[members[calls["group"]] > 1]
    used, calls["group"] = np.unique(calls["group"].to_numpy(), return_inverse=True)
    groups = tuple(groups[number] for number in used)
    calls = calls.assign(**_ways(calls, numbers), kind=calls["kind"].replace(PAIRED))
    calls = pd.concat([keyed(part) for _, part in calls.groupby("group", sort=True)] or [calls.assign(key=0)])
    call, _ = pd.factorize(pd.MultiIndex.from_frame(calls[["group", "key"]]))
    calls = calls.assign(call=call).drop(columns="key")
    calls = calls.sort_values(["call", "rank"], kind="stable", ignore_index=True)
    return Matched(calls, groups, _missing(calls, groups, numbers), _uneven(calls))


def _all_calls(ranks: Sequence[RankSummary]) -> pd.DataFrame:
    tables = [rank.calls for rank in ranks]
    columns = {str(name): np.concatenate([table[name].to_numpy() for table in tables]) for name in tables[0]}
    rank = np.repeat(np.arange(len(ranks)), [len(table) for table in tables])
    base_ns = np.array([each.base_ns for each in ranks])[rank]
    times = {name: columns[name] + base_ns for name in ("start_ns", "end_ns")}
    return pd.DataFrame({**columns, **times, "rank": rank})


def _ways(calls: pd.DataFrame, numbers: Sequence[int]) -> dict[str, Ints]:
    """Return the columns source and target of `calls`."""
    number, peer = np.asarray(numbers)[calls["rank"].to_numpy()], calls["peer"].to_numpy()
    sends, known = (calls["kind"] == "send").to_numpy(), calls["kind"].isin(PAIRED).to_numpy() & (peer >= 0)
    ways = {"source": np.where(sends, number, peer), "target": np.where(sends, peer, number)}
    return {name: np.where(known, way, -1) for name, way in ways.items()}


def _groups_of(ranks: Sequence[RankSummary], numbers: Sequence[int]) -> list[dict[str, Sequence[int]]]:
    """Return, for each rank, the members of its groups by name. All ranks are a range: the number of ranks that a trace
    states is not trusted."""
    known = [{group.name: group.ranks for group in rank.groups if group.ranks} for rank in ranks]
    world = max([rank.world_size or 0 for rank in ranks] + [0])
    everyone = range(world) if world > max(numbers, default=0) else tuple(sorted(numbers))
    return [{**groups, WORLD: everyone} for groups in known]


def _group_numbers(
    calls: pd.DataFrame, known: list[dict[str, Sequence[int]]], numbers: Sequence[int]
) -> tuple[Ints, tuple[Group, ...]]:
    """Return the group number of each call, and the groups. A call without a group name belongs to the only group, or
    else to a group of all ranks."""
    keys = calls.groupby(["rank", "group"], sort=False).ngroup().to_numpy()
    number_of: dict[tuple[str, Sequence[int]], int] = {}
    of_pair = []
    for rank, group in calls[["rank", "group"]].drop_duplicates().itertuples(index=False):
        named = [name for name in known[rank] if name != WORLD]
        name = group or (named[0] if len(named) == 1 else WORLD)
        of_pair.append(number_of.setdefault((name, known[rank].get(name, known[rank][WORLD])), len(number_of)))
    place = {number: position for position, number in enumerate(numbers)}
    number = np.array(of_pair, dtype=np.int64)[keys]
    made = pd.Series(calls["rank"].to_numpy()).groupby(number).agg(set)
    groups = []
    for at, (name, members) in enumerate(number_of):
        inside = members if isinstance(members, range) else {*members}
        traced = made[at] | {position for rank, position in place.items() if rank in inside}
        groups.append(Group(name, members, tuple(sorted(traced))))
    return number, tuple(groups)


def _missing(calls: pd.DataFrame, groups: tuple[Group, ...], numbers: Sequence[int]) -> pd.DataFrame:
    """Return the calls that a rank lacks between the calls that it made in its group, or with its peer; all calls if it
    made none."""
    position = {number: at for at, number in enumerate(numbers)}
    lacking = [calls[["rank", "group", "kind"]].iloc[:0]]
    for _, part in calls.groupby(["group", "source", "target"]):
        group, *pair = part[["group", "source", "target"]].iloc[0].tolist()
        traced = groups[group].traced if pair[0] < 0 else [position[each] for each in pair if each in position]
        lacking.append(_lacking(part, traced).assign(group=group))
    return pd.concat(lacking).groupby(["rank", "group", "kind"]).size().rename("count").reset_index()


def _lacking(calls: pd.DataFrame, traced: Sequence[int]) -> pd.DataFrame:
    """Return columns rank and kind, with one row for each call that one of the ranks lacks."""
    made = calls.groupby("call").agg(end=("end_ns", "median"), kind=("kind", "first")).sort_values("end")
    place = pd.Series(np.arange(len(made)), index=made.index)[calls["call"]].to_numpy()
    there = np.zeros((max(traced) + 1, len(made)), dtype=bool)
    there[calls["rank"].to_numpy(), place] = True
    there = there[list(traced)]
    begun = np.maximum.accumulate(there, axis=1) | ~there.any(axis=1, keepdims=True)
    goes_on = np.maximum.accumulate(there[:, ::-1], axis=1)[:, ::-1] | ~there.any(axis=1, keepdims=True)
    rank, column = np.nonzero(begun & goes_on & ~there)
    return pd.DataFrame({"rank": np.asarray(traced)[rank], "kind": made["kind"].to_numpy()[column]})


def _uneven(calls: pd.DataFrame) -> pd.DataFrame:
    even = calls[~calls["kind"].isin(UNEVEN) & (calls["bytes"] > 0)]
    usual = even.groupby("call")["bytes"].transform("median")
    odd = even[even["bytes"] != usual]
    return odd.groupby(["rank", "group", "kind"]).size().rename("count").reset_index()


UNEVEN = ("all-to-all", "send-receive")
"""Kinds whose messages may differ in size between ranks."""
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

    Without sequence numbers, calls are matched by their order within each kind and size if all ranks made equally many.
    Otherwise calls are matched by the longest common subsequence with the rank that made the most of them: all calls,
    or only those of the kinds and sizes that differ in number, if fewer calls of the job then remain (calls of several
    groups that run at the same time have no common order).
    """
    if (calls["sequence"] >= 0).all():
        nth = calls.groupby(["rank", "sequence"], sort=False).cumcount().to_numpy()
        return calls.assign(key=nth + (calls["sequence"].to_numpy() << 20))
    rank, what, step = calls["rank"].to_numpy(), _what(calls), calls["step"].to_numpy()
    counts = pd.crosstab(rank, what)
    even = (counts == counts.iloc[0]).all().to_numpy()[what]
    key = calls.groupby([rank, what], sort=False).cumcount().to_numpy() * (what.max() + 1) + what
    if not even.all():
        key[~even] = key.max() + 1 + _number_by_common_sequence(rank[~even], what[~even], step[~even])
        key = min(_number_by_common_sequence(rank, what, step), key, key=lambda each: len(np.unique(each)))
    return calls.assign(key=key)


def _what(calls: pd.DataFrame) -> Ints:
    """Number each combination of kind, dtype and message size."""
    size = calls["bytes"].where(~calls["kind"].isin(UNEVEN), 0)
    return calls.assign(size=size).groupby(["kind", "dtype", "size"], sort=False).ngroup().to_numpy().astype(np.int64)


def _number_by_common_sequence(rank: Ints, what: Ints, step: Ints) -> Ints:
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
    if (places >= 0).all() or len(usual) * len(mine) > _MOST_CELLS:
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
