"""Formulas by the names of ops. PyTorch's have theirs by a decorator, those of other libraries by a row of ops.toml.

    "sgl_kernel::fp8_scaled_mm" = "scaled_linear(a, weight)"
    "_C::paged_attention_v1" = "paged_attention(_, query, keys, blocks@6, longest@9)"

A row has a formula and the names of its inputs in the order of the op's schema. `_` is an input that the formula does
not use, `name@9` is at position 9, and `name=value` is no input but a number or a word. A user's file (--ops-file) has
such rows, too.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from tracekit.analyzers.cost.ops.arguments import Arguments
from tracekit.analyzers.cost.ops.call import Cost

Formula = Callable[[Arguments], Cost | None]

FORMULAS: dict[str, Formula] = {}
ROW_FORMULAS: dict[str, Callable[..., Any]] = {}
"""Formulas that rows may name. One that is a class is created with the inputs' positions, and then called."""

_Named = TypeVar("_Named", bound=Callable[..., Any])


class DuplicateFormulaError(ValueError):
    """Two formulas are registered for one op, or two formulas have one name."""


def formula(named: _Named) -> _Named:
    """Make a formula one that rows may name."""
    if named.__name__ in ROW_FORMULAS:
        raise DuplicateFormulaError(f"{named.__name__} is the name of a formula already")
    ROW_FORMULAS[named.__name__] = named
    return named


def costs(*names: str, **bound: Any) -> Callable[[Callable[..., Cost | None]], Callable[..., Cost | None]]:
    """Register a formula for ops; `bound` are keyword arguments that it is called with."""

    def register(function: Callable[..., Cost | None]) -> Callable[..., Cost | None]:
        for name in names:
            _add(name, partial(function, **bound) if bound else function)
        return function

    return register


def _add(name: str, known: Formula) -> None:
    if name in FORMULAS:
        raise DuplicateFormulaError(f"{name} has a formula already")
    FORMULAS[name] = known


def add_table(path: Path) -> None:
    """Register the ops of a table of tracekit's own, whose names may have alternatives in braces: `gemm{,_ck}`."""
    formulas = cache(lambda row: bound_to(*parsed(row)))
    for names, row in tomllib.loads(path.read_text()).items():
        for name in _alternatives(names):
            _add(name, formulas(row))


def _alternatives(names: str) -> Iterator[str]:
    parts = re.split(r"\{(.*?)\}", names)
    return map("".join, product(*(part.split(",") if at % 2 else [part] for at, part in enumerate(parts))))


_ROW = re.compile(r"(?P<formula>\w+)(?:\((?P<inputs>[^()]*)\))?")
_INPUT = re.compile(r"(?P<name>_|[a-z]\w*)(?:@(?P<at>\d{1,3})|=(?P<value>\d{1,6}|[a-z][\w-]*))?")
_WORDS: dict[str, Any] = {"true": True, "false": False}


def parsed(row: str) -> tuple[str, dict[str, Any]]:
    """Return a row's formula and what it is bound to. Raises ValueError for what is no row."""
    parts = _ROW.fullmatch(row)
    if parts is None:
        raise ValueError("It is not of the form formula(input, _, input@9, name=value).")
    bound: dict[str, Any] = {}
    at = 0
    for text in filter(None, (each.strip() for each in (parts["inputs"] or "").split(","))):
        each = _INPUT.fullmatch(text)
        if each is None or each["name"] in bound:
            raise ValueError(f"'{text[:80]}' is not an input, or is there twice.")
        if value := each["value"]:
            bound[each["name"]] = int(value) if value.isdecimal() else _WORDS.get(value, value)
            continue
        at = int(each["at"] or at)
        if each["name"] != "_":
            bound[each["name"]] = at
        at += 1
    return parts["formula"], bound


def bound_to(name: str, bound: Mapping[str, Any]) -> Formula:
    known = ROW_FORMULAS[name]
    return known(**bound) if isinstance(known, type) else partial(known, **bound) if bound else known
