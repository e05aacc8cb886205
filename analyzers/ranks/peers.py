"""The ranks that do the same as each rank, to compare it with."""

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.ranks.program import Program

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

UNLIKE = 0.2
"""Ranks whose numbers of calls of each kind differ by more than this part are not compared."""


def peers(program: Program) -> list[list[int]]:
    """Per rank, the other ranks that make about as many calls of each kind; all others where there are none.

    Stages of a pipeline make other calls than their neighbours; the ranks of one stage are compared.
    """
    number = _alike(_calls_by_kind(program))
    everyone = np.arange(program.ranks)
    found = [everyone[(number == number[rank]) & (everyone != rank)].tolist() for rank in everyone]
    return [mine or everyone[everyone != rank].tolist() for rank, mine in enumerate(found)]


def _calls_by_kind(program: Program) -> Ints:
    kinds, code = np.unique(program.kind.astype(str), return_inverse=True)
    counts = np.zeros((program.ranks, len(kinds)), dtype=np.int64)
    np.add.at(counts, (program.rank, code), 1)
    return counts


def _alike(counts: Ints) -> Ints:
    """A number for each set of rows that differ little from the first row of the set."""
    number = np.full(len(counts), -1)
    for row in range(len(counts)):
        if number[row] < 0:
            apart = np.abs(counts - counts[row]).sum(axis=1)
            number[(number < 0) & (apart <= UNLIKE * counts[row].sum())] = row
    return number


def typical(own: Floats, ranks: list[int]) -> int:
    """The rank among these whose own time is the median (the lower one of two)."""
    total = own[ranks].sum(axis=1)
    return ranks[int(np.argsort(total, kind="stable")[(len(ranks) - 1) // 2])]
