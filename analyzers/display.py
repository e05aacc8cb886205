"""Base class of values that notebooks display. `tracekit.reports` has the functions that render them."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

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
