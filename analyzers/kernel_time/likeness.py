"""Sections of constants.toml that inherit from another one: their missing constants are those of the other section."""

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

_EXPECTED = 1
"""Position in a list of low, expected and high."""


def linked(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections, each as a ChainMap whose first map holds its own values, with intervals as expected."""
    own = {name: _expected(values) if isinstance(values, dict) else values for name, values in sections.items()}
    return {name: _chain(name, own) if isinstance(values, dict) else _middle(values) for name, values in own.items()}


def _expected(section: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _middle(value) for name, value in section.items()}


def _middle(value: Any) -> Any:
    return value[_EXPECTED] if isinstance(value, list) else value


def _chain(name: str, own: Mapping[str, dict[str, Any]]) -> ChainMap[str, Any]:
    maps = [own[name]]
    while "like" in maps[-1]:
        maps.append(own[maps[-1]["like"]])
    return ChainMap(*maps)
