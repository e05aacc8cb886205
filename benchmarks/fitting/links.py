"""Fits copies between host and device and between devices, [link.*] in analyzers/cost/time/constants.toml.

    python -m benchmarks fitting.links [--dry-run]

On our own copies between an H200 and its host, both directions, and between two H200s over NVLink.
"""

import numpy as np
import pandas as pd

from benchmarks.fitting.constants import Constants, arguments, fitted, write
from benchmarks.measurements import own
from benchmarks.measurements.collectives import copies
from tracekit.analyzers.cost import copy_ns
from tracekit.analyzers.cost.hardware import find
from tracekit.analyzers.cost.time import estimate
from tracekit.analyzers.cost.time.links import Link, section_of


def main() -> None:
    asked = arguments(__doc__)
    fit("pinned", ("start_us", "efficiency"), asked.write)
    fit("pageable", ("start_us", "staging_gbs"), asked.write)
    fit("peer", ("start_us", "efficiency"), asked.write)


def fit(link: Link, names: tuple[str, ...], writes: bool) -> None:
    rows, gpu = measured(link), find("h200")
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


def measured(link: Link) -> pd.DataFrame:
    """Return the bytes and microseconds of each copy."""
    if link == "peer":
        return copies()
    rows = own.links()
    return rows[rows["label"].str.endswith(f"_{link}")].rename(columns={"warm_us": "us"})


if __name__ == "__main__":
    main()
