"""Pair begin (B) and end (E) events into events with a duration."""

import numpy as np

from tracekit.analyzers.readers.columns import Columns, narrowed, take


def paired(marks: Columns) -> tuple[Columns, int]:
    """Returns (host columns of the pairs, how many marks have no counterpart).

    On a thread, by time, a begin goes one level down and an end comes back up: the two of a pair are neighbours among
    the marks of their thread and level.
    """
    order = np.lexsort((marks["start_ns"], marks["thread"].codes))
    rows = take(marks, order)
    thread, begins, start = rows["thread"].codes, rows["begins"], rows["start_ns"]
    depth = np.cumsum(np.where(begins, 1, -1))
    level = np.where(begins, depth, depth + 1)
    by_level = np.lexsort((level, thread))
    first, second = by_level[:-1], by_level[1:]
    pairs = begins[first] & ~begins[second] & (level[first] == level[second]) & (thread[first] == thread[second])
    first, second = first[pairs], second[pairs]
    events = take(rows, first)
    events["duration_ns"] = narrowed(start[second] - start[first])
    return take(events, np.asarray(events["category"]) >= 0), len(start) - 2 * len(first)
