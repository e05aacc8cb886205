"""Chapter: collectives between H200s on a machine that was not used for fitting, and in public traces."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from fit_collectives import elsewhere
from measurements.collectives import FILE, TOLD_FROM, collectives

from accuracy.chapter import Chapter, NothingToCompareError, at_most, percent, table
from accuracy.traced_collectives import written
from tracekit.analyzers.cost.time import estimate

_LONG = 8 << 20
_SIZES = ("to 256 KB", "1 and 4 MB", "from 16 MB")
_INTRODUCTION = """Calls were repeated without a wait on two machines with H200s (NVLink SHARP off). Each machine is
predicted by constants that were fitted on the other one; the machine with four GPUs was predicted from one with two, so
that four ranks test the ring. *Host*: without links between the GPUs, through the host's memory. A call takes as long
as its kernel or its launch by the host, whichever is longer. Up to 256 KB, the launch (16 to 20 µs) hides the kernel,
so only the launch is compared."""
_MISSES = """The largest error is that of a broadcast to four ranks through the host's memory: ranks in the middle of
its chain send and receive, those at its ends do not, but the model has one rate for both. Means of calls that took two
to ten times as long as their neighbours (some of up to 4 MB) were kept."""


def chapter(shared: Path) -> Chapter:
    if not FILE.is_file():
        raise NothingToCompareError(f"no {FILE.name}.")
    compared = _unseen()
    told = compared[compared["bytes"] >= TOLD_FROM]
    errors = {str(name): float((rows["ratio"] - 1).abs().mean()) for name, rows in told.groupby("between")}
    targets = tuple(
        at_most(f"collectives ({name}), mean error on a machine not fitted on", 0.10, error)
        for name, error in errors.items()
    )
    parts = (_INTRODUCTION, _table(compared), _MISSES, written(shared))
    return Chapter("Collective communication", "\n\n".join(parts), targets)


def _unseen() -> pd.DataFrame:
    """Return all calls with their ratios. Afterwards, the constants are those of the file again."""
    compared = pd.concat([part for _, rows in collectives().groupby("between") for part in elsewhere(rows)])
    estimate.constants.cache_clear()
    return compared


def _table(compared: pd.DataFrame) -> str:
    return table(("collective", "link", "ranks", "calls", *_SIZES), _rows(compared), 5)


def _rows(compared: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    size = pd.cut(compared["bytes"], [0, TOLD_FROM - 1, _LONG, float("inf")], labels=_SIZES)
    errors = (compared["ratio"] - 1).abs()
    for key, mine in errors.groupby([compared["collective"], compared["between"], compared["ranks"]], sort=False):
        means = mine.groupby(size[mine.index], observed=False).mean()
        yield (*key, len(mine), *(percent(means[name], 1) for name in _SIZES))
