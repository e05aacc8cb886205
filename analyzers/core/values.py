"""A value with uncertainty."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tracekit.analyzers.core.limits import Number


@dataclass(frozen=True)
class Interval:
    """An expected value with bounds, between which 80 % of measurements are expected."""

    low: Number
    expected: Number
    high: Number

    def __post_init__(self) -> None:
        if self.low > self.expected or self.expected > self.high:
            raise ValueError(f"The ends of an interval are out of order: {self.low}, {self.expected}, {self.high}")


@dataclass(frozen=True)
class Outcomes:
    """A constant of a prediction in each scenario. A larger value is better for some constants and worse for others."""

    worst: float
    expected: float
    best: float


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
