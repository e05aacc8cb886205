"""Find the end of each slice."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

UNENDED = -1


@dataclass(frozen=True, slots=True)
class Mark:
    """The beginning (with the slice's number) or the end (-1) of a slice, in the order of the file."""

    track: int
    time_ns: int
    slice: int = -1


def end_times(marks: Sequence[Mark], slices: int) -> tuple[list[int], int]:
    """Return the end of each of `slices` slices (UNENDED for none), and the number of ends without a beginning.

    A recorder writes marks in order of time, and slices nest on their track. PyTorch exports all beginnings of a kind,
    and then all ends in the same order; a slice may begin in the nanosecond in which the previous one ends.
    """
    ends = [UNENDED] * slices
    left: list[Mark] = []
    runs = [list(run) for _, run in groupby(marks, key=lambda mark: mark.slice >= 0)]
    for begins, after in pairwise([*runs, []]):
        if begins[0].slice < 0:
            continue
        exported = _exported(begins, after)
        for begin, end in zip(begins, after, strict=False):
            if begin.track in exported:
                ends[begin.slice] = end.time_ns
        left += [mark for mark in (*begins, *after) if mark.track not in exported]
    if runs and runs[0][0].slice < 0:
        left = runs[0] + left
    return ends, _nest(left, ends)


def _exported(begins: Sequence[Mark], after: Sequence[Mark]) -> set[int]:
    """Return the tracks on which the k-th end belongs to the k-th beginning, because their marks are not in order of
    time."""
    if len(begins) != len(after) or any(
        begin.track != end.track or end.time_ns < begin.time_ns for begin, end in zip(begins, after, strict=True)
    ):
        return set()
    times: dict[int, list[int]] = defaultdict(list)
    for mark in (*begins, *after):
        times[mark.track].append(mark.time_ns)
    return {track for track, of_track in times.items() if any(a > b for a, b in pairwise(of_track))}


def _nest(marks: Sequence[Mark], ends: list[int]) -> int:
    """Pair each beginning with the end at its depth, in order of time, and return the number of unpaired ends."""
    open_slices: dict[int, list[int]] = defaultdict(list)
    over = 0
    for mark in sorted(marks, key=lambda mark: mark.time_ns):
        if mark.slice >= 0:
            open_slices[mark.track].append(mark.slice)
        elif open_slices[mark.track]:
            ends[open_slices[mark.track].pop()] = mark.time_ns
        else:
            over += 1
    return over
