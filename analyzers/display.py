"""Values that notebooks show. How they are drawn is for the floors above, which say so; nothing is drawn here."""

from collections.abc import Callable
from typing import Any, TypeVar

Bundle = dict[str, str]
"""A text by its MIME type."""

Value = TypeVar("Value")

_renderers: dict[type, Callable[[Any], Bundle]] = {}


def drawn_by(kind: type[Value], render: Callable[[Value], Bundle]) -> None:
    """From now on, notebooks show values of that type as `render` draws them."""
    _renderers[kind] = render


class Displayed:
    """Asked by IPython how to show itself; None leaves it to `repr`."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Bundle | None:
        render = _renderers.get(type(self))
        return render(self) if render else None
