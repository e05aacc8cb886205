"""Replaces values in a TOML file in place. Comments, order and alignment stay."""

import argparse
import re
from collections import ChainMap, defaultdict
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measurements.own import Row
from tracekit.analyzers.cost.time import estimate

Value = float | str | Mapping[str, float] | Sequence[float]

_SECTION = re.compile(r"\[([^\]]+)\]\s*")


def write(file: Path, section: str, values: Mapping[str, Value]) -> None:
    """Set `values` in [section]; names that it lacks are added at its end."""
    lines = file.read_text(encoding="utf-8").splitlines()
    start, end = _extent(lines, section)
    missing = dict(values)
    for number in range(start, end):
        name = lines[number].partition("=")[0].strip()
        if name in missing:
            lines[number] = _assigned(lines[number], _literal(missing.pop(name)))
    while end > start and not lines[end - 1].strip():
        end -= 1
    lines[end:end] = [f"{name} = {_literal(value)}" for name, value in missing.items()]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _extent(lines: list[str], section: str) -> tuple[int, int]:
    headers = [(number, header[1]) for number, line in enumerate(lines) if (header := _SECTION.fullmatch(line))]
    start = next(number for number, name in headers if name == section) + 1
    return start, next((number for number, _ in headers if number >= start), len(lines))


def _assigned(line: str, literal: str) -> str:
    name, _, rest = line.partition("=")
    comment = re.search(r"\s+#[^\"]*$", rest)
    text = f"{name.rstrip()} = {literal}"
    if not comment:
        return text
    return text.ljust(len(line[: len(name) + 1 + comment.start()])) + comment[0]


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_literal(one)}' for name, one in value.items())} }}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_literal, value))}]"
    return f"{value:g}"


Constants = dict[str, float]
_STEPS = (1.6, 1.25, 1.1, 1.04, 1.015)


def fitted(loss: Callable[[Constants], float], start: Mapping[str, float], sweeps: int = 8) -> Constants:
    """Return the constants near `start` with the least loss, rounded to three digits."""
    best = dict(start)
    least = loss(best)
    for step in _STEPS:
        for _ in range(sweeps):
            candidate, least_now = _sweep(loss, best, least, step)
            if candidate == best:
                break
            best, least = candidate, least_now
    return {name: float(f"{value:.3g}") for name, value in best.items()}


def _sweep(loss: Callable[[Constants], float], best: Constants, least: float, step: float) -> tuple[Constants, float]:
    for name in best:
        for factor in (step, 1 / step):
            tried = {**best, name: best[name] * factor}
            now = loss(tried)
            if now < least * (1 - 1e-6):
                best, least = tried, now
                break
    return best, least


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


@dataclass(frozen=True)
class Asked:
    shared: Path
    write: bool


def arguments(description: str) -> Asked:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path(__file__).parents[3] / "shared")
    parser.add_argument("--dry-run", action="store_true", help="print, do not change the constants")
    asked = parser.parse_args()
    return Asked(asked.shared, not asked.dry_run)
