"""Base class of values that notebooks display. The rendering functions are registered by `tracekit.reports`."""

from collections.abc import Callable
from typing import Any, TypeVar

Bundle = dict[str, str]
"""MIME type -> text."""

Value = TypeVar("Value")

_renderers: dict[type, Callable[[Any], Bundle]] = {}


def drawn_by(kind: type[Value], render: Callable[[Value], Bundle]) -> None:
    """Register `render` as the function with which notebooks display values of a type."""
    _renderers[kind] = render


class Displayed:
    """A value with rich output in notebooks; `repr` is used if no function is registered for its type."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Bundle | None:
        render = _renderers.get(type(self))
        return render(self) if render else None
