"""Fits collectives between GPUs of one host, [collective.*] in analyzers/cost/time/constants.toml.

    python -m benchmarks fitting.collectives [--dry-run]

On our own calls on two machines with H200s, over NVLink and without it. Calls were repeated without a wait, so that
each took as long as its kernel or as its issue by the host, whichever is longer; the shortest messages tell the issue,
those of 1 MB and more the kernel. The error that is written is that of the latter on the machine not fitted on.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.fitting.constants import Constants, arguments, fitted, write
from benchmarks.measurements.collectives import TOLD_FROM, collectives, issue_us
from tracekit.analyzers.cost import collective_ns
from tracekit.analyzers.cost.hardware import find
from tracekit.analyzers.cost.time import estimate

_FITTED = ("start_us", "efficiency", "one_way", "kept")


def main() -> None:
    asked = arguments(__doc__)
    for between, rows in collectives().groupby("between"):
        unseen = pd.concat(elsewhere(rows))
        error = float(np.abs(unseen["ratio"][unseen["bytes"] >= TOLD_FROM] - 1).mean())
        best, used = fit(rows), int((rows["bytes"] >= TOLD_FROM).sum())
        print(f"{between:<8}{used:>4} calls  {error:6.1%}  {best}")
        if asked.write:
            source = f"{used} calls on two machines with h200"
            values = {**best, "error": round(error, 3), "source": source}
            write(estimate.CONSTANTS, f"collective.{between}", values)


def elsewhere(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Return the calls of each machine, with their `ratio` by constants fitted on the other machines."""
    for machine, mine in rows.groupby("machine"):
        others = rows[rows["machine"] != machine]
        fit(others)
        yield mine.assign(ratio=ratios(mine, issue_us(others)))


def fit(rows: pd.DataFrame) -> Constants:
    """The constants of the link of these calls with the least mean |log(modelled / measured)|; they stay in place for
    this process."""
    section, told = estimate.constants()["collective"][rows["between"].iloc[0]], rows[rows["bytes"] >= TOLD_FROM]
    start = {name: section[name] for name in _FITTED if name in section}
    issue = issue_us(rows)

    def loss(tried: Constants) -> float:
        section.update(tried)
        return float(np.abs(np.log(ratios(told, issue))).mean())

    best = fitted(loss, start)
    section.update(best)
    return best


def ratios(rows: pd.DataFrame, issue: float) -> npt.NDArray[np.float64]:
    """Return modelled over measured time of each call."""
    gpu = find("h200")
    calls = zip(rows["message"], rows["between"], strict=True)
    modelled = np.array([collective_ns(message, gpu, between) / 1e3 for message, between in calls])
    return np.maximum(modelled, issue) / rows["us"].to_numpy()


if __name__ == "__main__":
    main()
