"""Fits one section of constants.toml through the model itself."""

from collections import ChainMap, defaultdict
from collections.abc import Callable, Hashable, MutableMapping, Sequence
from typing import Any

import numpy as np
from measurements.row import Row

from fitting.constants_file import Value, write
from fitting.search import Constants, fitted
from tracekit.analyzers.cost.time import estimate

_CAPS = {"rate": 1.03}
"""Rate of a stream that only reads, relative to that of a copy."""
_ROWS = 10
"""Fewest rows whose constants are written without an interval."""

Key = Callable[[Row], Hashable]


def fit(path: str, rows: Sequence[Row], key: Key, given: Sequence[str] = ()) -> tuple[Constants, float]:
    """The constants of the section at `path` with the least mean |log(modelled / measured)|, and their mean error.

    Classes of rows (`key`) weigh the same. What is `given` stays, and what the section has from one that it is like.
    The constants stay in place for this process.
    """
    section = section_of(path)
    start = {name: value for name, value in own(section).items() if name not in given}

    def ratios(tried: Constants) -> list[float]:
        section.update(tried)
        return [estimate.model_seconds(row.cost, row.gpu) * 1e9 / row.nanoseconds for row in rows]

    def capped(tried: Constants) -> Constants:
        return {name: min(value, _CAPS.get(name, value)) for name, value in tried.items()}

    best = capped(fitted(lambda tried: mean(np.abs(np.log(ratios(capped(tried)))), rows, key), start))
    return best, mean(np.abs(np.array(ratios(best)) - 1), rows, key)


def fit_and_write(path: str, rows: Sequence[Row], key: Key, given: Sequence[str] = (), writes: bool = True) -> None:
    """Fit a section that has numbers of its own, and write them: of few rows, as intervals."""
    best, error = fit(path, rows, key, given)
    print(f"{path:<26}{len(rows):>5} rows  {error:6.1%}  {best}", flush=True)
    if writes and best:
        found = best if len(rows) >= _ROWS else spread(path, rows, key, given, best)
        write(estimate.CONSTANTS, path, {**found, **provenance(rows, error)})


def spread(path: str, rows: Sequence[Row], key: Key, given: Sequence[str], best: Constants) -> dict[str, Value]:
    """Return the low, expected and high value of each constant: the ends are those of fits without each row."""
    fits = [best, *(fit(path, [other for other in rows if other is not row], key, given)[0] for row in rows)]
    section_of(path).update(best)
    ends = {name: [one[name] for one in fits] for name in best}
    return {name: [min(ends[name]), value, max(ends[name])] for name, value in best.items()}


def own(section: MutableMapping[str, Any]) -> Constants:
    """Return the numbers of a section that it has not from one that it is like."""
    values = section.maps[0] if isinstance(section, ChainMap) else section
    return {name: value for name, value in values.items() if type(value) in (int, float) and name != "error"}


def provenance(rows: Sequence[Row], error: float) -> dict[str, float | str]:
    gpus = ", ".join(sorted({row.gpu.id for row in rows}))
    return {"error": round(error, 3), "source": f"{len(rows)} kernels of {gpus}"}


def section_of(path: str) -> MutableMapping[str, Any]:
    section: Any = estimate.constants()
    for name in path.split("."):
        section = section[name]
    found: MutableMapping[str, Any] = section
    return found


def mean(values: Sequence[float], rows: Sequence[Row], key: Key) -> float:
    """Return the mean over classes of the mean over their rows."""
    groups: dict[Hashable, list[float]] = defaultdict(list)
    for value, row in zip(values, rows, strict=True):
        groups[key(row)].append(value)
    return float(np.mean([np.mean(errors) for errors in groups.values()]))
