"""Fits collectives between GPUs of one host, and copies: [collective.*] and [link.*] of cost/time/constants.toml.

    python -m benchmarks fitting.collectives [--dry-run]

On our own calls on two machines with H200s, over NVLink and without it. Calls were repeated without a wait, so that
each took as long as its kernel or as its issue by the host, whichever is longer; the shortest messages tell the issue,
those of 1 MB and more the kernel. The error that is written is that of the latter on the machine not fitted on. Copies
are those between an H200 and its host, both directions, and between two H200s over NVLink.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.fitting.constants import Constants, arguments, fitted, write
from benchmarks.measurements import own
from benchmarks.measurements.own import TOLD_FROM, collectives, copies, issue_us
from tracekit.analyzers.cost import collective_ns, copy_ns
from tracekit.analyzers.cost.hardware import find
from tracekit.analyzers.cost.time import estimate
from tracekit.analyzers.cost.time.links import Link, section_of

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
    fit_copies("pinned", ("start_us", "efficiency"), asked.write)
    fit_copies("pageable", ("start_us", "staging_gbs"), asked.write)
    fit_copies("peer", ("start_us", "efficiency"), asked.write)


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


def fit_copies(link: Link, names: tuple[str, ...], writes: bool) -> None:
    rows, gpu = measured_copies(link), find("h200")
    name = section_of(gpu, link)
    section = estimate.constants()["link"][name]

    def ratios(tried: Constants) -> np.ndarray:
        section.update(tried)
        return np.array([copy_ns(size, gpu, link) / 1e3 for size in rows["bytes"]]) / rows["us"].to_numpy()

    best = fitted(lambda tried: float(np.abs(np.log(ratios(tried))).mean()), {one: section[one] for one in names})
    error = float(np.abs(ratios(best) - 1).mean())
    print(f"{link:<10}{len(rows):>4} copies  {error:6.1%}  {best}")
    if writes:
        values = {**best, "error": round(error, 3), "source": f"{len(rows)} copies of h200"}
        write(estimate.CONSTANTS, f"link.{name}", values)


def measured_copies(link: Link) -> pd.DataFrame:
    """Return the bytes and microseconds of each copy."""
    if link == "peer":
        return copies()
    rows = own.links()
    return rows[rows["label"].str.endswith(f"_{link}")].rename(columns={"warm_us": "us"})


if __name__ == "__main__":
    main()
