"""Values with uncertainty, constants in TOML, and Student's t distribution with the functions of a moderated t."""

import math
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from statistics import NormalDist
from types import CodeType
from typing import Any, ClassVar

import msgspec

from tracekit.analyzers.core.limits import Number


class Interval(msgspec.Struct, frozen=True):
    """An expected value with bounds, between which 80 % of measurements are expected."""

    low: Number
    expected: Number
    high: Number

    def __post_init__(self) -> None:
        if self.low > self.expected or self.expected > self.high:
            raise ValueError(f"The ends of an interval are out of order: {self.low}, {self.expected}, {self.high}")


class Outcomes(msgspec.Struct, frozen=True):
    """A constant of a prediction in each scenario. A larger value is better for some constants and worse for others."""

    worst: float
    expected: float
    best: float

    def mapped(self, change: Callable[[float], float]) -> "Outcomes":
        """Return the changed values."""
        return Outcomes(change(self.worst), change(self.expected), change(self.best))


Bundle = dict[str, str]
"""MIME type -> text."""

Renderers = Mapping[type, Callable[[Any], Bundle]]


class Displayed:
    """A value with rich output in notebooks; `repr` is used if there is no function for its type."""

    renderers: ClassVar[Callable[[], Renderers]] = dict
    """Returns the functions. It is called when a value is displayed."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Bundle | None:
        render = Displayed.renderers().get(type(self))
        return render(self) if render else None


_RECURSE_BELOW = 6.0
_TINY = 1e-300


@lru_cache(maxsize=1024)
def t_quantile(probability: float, df: float) -> float:
    """Return t with P(T <= t) = `probability` (0.5 to 1) for `df` degrees of freedom; infinite `df` is the normal."""
    if math.isinf(df):
        return NormalDist().inv_cdf(probability)
    low, high = 0.0, 1.0
    while _cdf(high, df) < probability:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _cdf(middle, df) < probability else (low, middle)
    return (low + high) / 2


def digamma(x: float) -> float:
    """Return the derivative of log Gamma, for x > 0."""
    shift = 0.0
    while x < _RECURSE_BELOW:
        shift -= 1 / x
        x += 1
    square = 1 / x**2
    return shift + math.log(x) - 1 / (2 * x) - square * (1 / 12 - square * (1 / 120 - square / 252))


def trigamma(x: float) -> float:
    """Return the derivative of `digamma`, for x > 0."""
    shift = 0.0
    while x < _RECURSE_BELOW:
        shift += 1 / x**2
        x += 1
    square = 1 / x**2
    return shift + 1 / x + square / 2 + square / x * (1 / 6 - square * (1 / 30 - square / 42))


def trigamma_inverse(y: float) -> float:
    """Return x > 0 with trigamma(x) = y, for y > 0, by bisection of log x."""
    low, high = -20.0, 40.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if trigamma(math.exp(middle)) > y else (low, middle)
    return math.exp((low + high) / 2)


def _cdf(t: float, df: float) -> float:
    """Return P(T <= t) for t >= 0."""
    return 1 - _beta_regularized(df / 2, 0.5, df / (df + t * t)) / 2


def _beta_regularized(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b), by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x > (a + 1) / (a + b + 2):
        return 1 - front * _fraction(b, a, 1 - x) / b
    return front * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    h = d
    for m in range(1, 300):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            h *= d * c
        if abs(d * c - 1) < 1e-13:
            break
    return h


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def outcomes(file: str) -> dict[str, Outcomes]:
    """Return the constants of a source file (its `__file__`) that differ by scenario, by name.

    The rows are those of the section of constants.toml that is named as the file. Each has worst, expected and best,
    a unit, a source, and the number of rows that it is known from (0: assumed, or published).
    Raises ValueError if an expected value is not between the two others.
    """
    return {name: _outcomes(row) for name, row in _section(file).items() if "worst" in row}


def _outcomes(row: Mapping[str, Any]) -> Outcomes:
    worst, expected, best = row["worst"], row["expected"], row["best"]
    between = Interval(min(worst, best), expected, max(worst, best))  # raises if it is not
    return Outcomes(worst, between.expected, best)


def intervals(file: str) -> dict[str, Interval]:
    """Return those that have a low and a high end, of which 80 % of measurements are inside."""
    rows = {name: row for name, row in _section(file).items() if "low" in row}
    return {name: Interval(row["low"], row["expected"], row["high"]) for name, row in rows.items()}


def numbers(file: str) -> dict[str, float]:
    """Return those that are a single value."""
    return {name: row["value"] for name, row in _section(file).items() if "value" in row}


def facts(file: str) -> dict[str, Any]:
    """Return what a source file (its `__file__`) looks up: the section of `facts.toml` that is named as the file."""
    return _section(file, "facts.toml")


def version(text: str) -> tuple[int, int]:
    """Return the two numbers of a version, such as a compute capability: "9.0" is (9, 0)."""
    major, minor = text.split(".")
    return int(major), int(minor)


def _section(file: str, beside: str = "constants.toml") -> dict[str, Any]:
    path = Path(file)
    section: dict[str, Any] = _table(path.with_name(beside))[path.stem]
    return section


@cache
def _table(path: Path) -> dict[str, Any]:
    return toml_table(path)


def toml_table(file: Path) -> dict[str, Any]:
    """Return a new dict of a TOML file of tracekit, never of a user's.

    Python keeps the parsed file in `__pycache__` as it keeps its modules, from where it is read in a thirtieth of the
    time.
    """
    code = _Parsed(file.name, f"{file}{_AS_MODULE}").get_code(file.name)
    assert code is not None
    table: dict[str, Any] = eval(code, {})
    return table


_AS_MODULE = ".py"
"""What follows the name of a TOML file in names of bytecode, so that no module beside it has the same."""


class _Parsed(SourceFileLoader):
    """Loads TOML as a module whose code is one expression."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        return super().path_stats(path.removesuffix(_AS_MODULE))

    def get_data(self, path: str) -> bytes:
        return super().get_data(path.removesuffix(_AS_MODULE))

    def source_to_code(self, data: Any, path: Any) -> CodeType:  # type: ignore[override]
        import tomllib  # takes longer to import than a parsed file to read

        return compile(repr(tomllib.loads(bytes(data).decode())), path, "eval")
