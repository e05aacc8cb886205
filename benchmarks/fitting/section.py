"""Fits one section of constants.toml through the model itself."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from measurements.row import Row

from fitting.constants_file import write
from fitting.search import Constants, fitted
from tracekit.analyzers.kernel_time import estimate

_CAPS = {"rate": 1.03}
"""Rate of a stream that only reads, relative to that of a copy."""

Key = Callable[[Row], Hashable]


def fit(path: str, rows: Sequence[Row], key: Key, given: Sequence[str] = ()) -> tuple[Constants, float]:
    """The constants of the section at `path` with the least mean |log(modelled / measured)|, and their mean error.

    Classes of rows (`key`) weigh the same. What is `given` stays. The constants stay in place for this process.
    """
    section = section_of(path)
    start = {name: value for name, value in section.items() if type(value) in (int, float)}
    start = {name: value for name, value in start.items() if name not in (*given, "error")}

    def ratios(tried: Constants) -> list[float]:
        section.update(tried)
        return [estimate.model_seconds(row.cost, row.gpu) * 1e9 / row.nanoseconds for row in rows]

    def capped(tried: Constants) -> Constants:
        return {name: min(value, _CAPS.get(name, value)) for name, value in tried.items()}

    best = capped(fitted(lambda tried: mean(np.abs(np.log(ratios(capped(tried)))), rows, key), start))
    return best, mean(np.abs(np.array(ratios(best)) - 1), rows, key)


def fit_and_write(path: str, rows: Sequence[Row], key: Key, given: Sequence[str] = (), writes: bool = True) -> None:
    best, error = fit(path, rows, key, given)
    print(f"{path:<26}{len(rows):>5} rows  {error:6.1%}  {best}", flush=True)
    if writes:
        write(estimate.CONSTANTS, path, {**best, **provenance(rows, error)})


def provenance(rows: Sequence[Row], error: float) -> dict[str, float | str]:
    gpus = ", ".join(sorted({row.gpu.id for row in rows}))
    return {"error": round(error, 3), "source": f"{len(rows)} kernels of {gpus}"}


def section_of(path: str) -> dict[str, Any]:
    section = estimate.constants()
    for name in path.split("."):
        section = section[name]
    return section


def mean(values: Sequence[float], rows: Sequence[Row], key: Key) -> float:
    """Return the mean over classes of the mean over their rows."""
    groups: dict[Hashable, list[float]] = defaultdict(list)
    for value, row in zip(values, rows, strict=True):
        groups[key(row)].append(value)
    return float(np.mean([np.mean(errors) for errors in groups.values()]))
