"""FLOPs and compulsory bytes of an op call, from its recorded input shapes, types and values.

    cost_of_signature("aten::mm", "[[8,768],[768,2304]]", '["float","float"]', '["",""]').flops

An op without a formula (views, containers, communication) has no cost: None. A user's file (--ops-file) adds rows like
those of ops.toml; an installed package adds a mapping of rows, or of functions, by the entry point `tracekit.ops`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache, wraps
from inspect import Parameter, signature
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from tracekit.analyzers.core import InputError, added, left_out, limits, plugged
from tracekit.analyzers.cost.hardware.gpu import nearest
from tracekit.analyzers.cost.ops import (  # noqa: F401 (importing a family registers its formulas)
    attention,
    convolution,
    copies,
    embeddings,
    experts,
    gemm,
    indexing,
    layers,
    norm,
    pointwise,
    quantized,
    reduction,
    sampling,
    training,
)
from tracekit.analyzers.cost.ops.arguments import Arguments, parse_call
from tracekit.analyzers.cost.ops.call import Cost, OpCall
from tracekit.analyzers.cost.ops.registry import FORMULAS, ROW_FORMULAS, Formula, add_table, bound_to, parsed
from tracekit.analyzers.cost.ops.tensors import MalformedCall

__all__ = ["Cost", "MalformedCall", "OpCall", "cost_of", "cost_of_signature", "ops_from", "parameters", "parse_call"]


add_table(Path(__file__).with_name("ops.toml"))

_own: ContextVar[Mapping[str, Formula]] = ContextVar("own_ops", default=MappingProxyType({}))


def cost_of(call: OpCall) -> Cost | None:
    """Return the cost of a call; None for an op without a formula, or if its recorded inputs do not determine it."""
    formula = formula_of(call.name)
    return None if formula is None else _cost(formula, call)


def _cost(formula: Formula, call: OpCall) -> Cost | None:
    try:
        return formula(Arguments(call))
    except (ValueError, IndexError, ArithmeticError, StopIteration):  # MalformedCall, or invalid or missing arguments
        return None


def cost_of_signature(
    name: str,
    shapes_json: str,
    dtypes_json: str,
    values_json: str = "",
    list_dtype: str | None = None,
    list_elements: int | None = None,
    strides_json: str = "",
) -> Cost | None:
    """Return the `cost_of` a call from its recorded signature; None also for text that is no signature. Never raises.

    Traces do not record the element type of tensor lists (cat, _foreach_*), assumed to be float32 unless `list_dtype`
    is given, nor the shapes of lists with more than 30 tensors. For these, an optimizer needs `list_elements`, the
    number of parameters.
    """
    formula = formula_of(name)
    if formula is None:
        return None
    return _remembered(formula, name, shapes_json, dtypes_json, values_json, list_dtype, list_elements, strides_json)


@lru_cache(maxsize=1 << 16)
def _remembered(formula: Formula, *signature: Any) -> Cost | None:
    try:
        return _cost(formula, parse_call(*signature))
    except MalformedCall:
        return None


def formula_of(name: str) -> Formula | None:
    """Return the formula of an op: that of the user's file, of an installed package, or tracekit's."""
    return _own.get().get(name) or _installed().get(name) or FORMULAS.get(name)


@cache
def _installed() -> Mapping[str, Formula]:
    return dict(each for ops in plugged("tracekit.ops") for each in _guarded(ops))


def _guarded(ops: object) -> Iterator[tuple[str, Formula]]:
    """Yield the formulas of a plug-in's mapping, without rows that are none."""
    if not isinstance(ops, Mapping):
        return left_out("of tracekit.ops", TypeError(f"{type(ops).__name__} is no mapping of ops to rows or functions"))
    for name, known in ops.items():
        try:
            yield name, _harmless(name, known) if callable(known) else checked(name, known, "a plug-in")
        except InputError as error:
            left_out("of tracekit.ops", error)


def _harmless(name: str, known: Formula) -> Formula:
    """Return the formula with its failures on stderr."""

    @wraps(known)
    def cost(call: Arguments) -> Cost | None:
        try:
            found = known(call)
            if not isinstance(found, Cost | None):
                raise TypeError(f"{type(found).__name__} is not a cost")
            return found
        except (ValueError, LookupError, ArithmeticError, StopIteration):
            return None  # inputs that do not fit
        except Exception as error:
            left_out(f"for {name}", error)
            return None

    return cost


ADVICE = "docs/plugins.md lists the formulas and their inputs."
_LONGEST = 200


@contextmanager
def ops_from(path: str | Path) -> Iterator[None]:
    """Use the ops of a user's file in the block: rows `"library::op" = "formula(input, ...)"`. They come before
    tracekit's own.

    Raises InputError for a file that holds anything else.
    """
    import tomllib  # few runs have such a file

    table = limits.decoded(Path(path), lambda data: tomllib.loads(data.decode()), ADVICE, limits.SETTINGS)
    with own_ops({name: checked(name, row, str(path)) for name, row in table.items()}, repr(sorted(table.items()))):
        yield


@contextmanager
def own_ops(formulas: Mapping[str, Formula], identity: str) -> Iterator[None]:
    """Use formulas in the block, in front of tracekit's. `identity` tells cached analyses with them from others."""
    token = _own.set({**_own.get(), **formulas})
    try:
        with added(identity):
            yield
    finally:
        _own.reset(token)


def checked(name: str, row: object, where: str) -> Formula:
    """Return the formula of a user's row. Raises InputError if there is none."""
    try:
        if not isinstance(row, str) or max(len(name), len(row)) > _LONGEST:
            raise ValueError(f"A row is a text of at most {_LONGEST} characters, as is the op's name.")
        known, bound = parsed(row)
        if known not in ROW_FORMULAS:
            raise ValueError(f"'{known[:80]}' is not a formula. {nearest(known, ROW_FORMULAS)}")
        return bound_to(known, _typed(known, bound))
    except ValueError as error:
        raise InputError(f"{where}: {name[:80]!r} has no cost.", str(error), ADVICE) from error


def _typed(name: str, bound: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bound values in the types of the formula's parameters. Raises ValueError for others."""
    known = parameters(name)
    unknown = next((each for each in bound if each not in known), None)
    if unknown:
        raise ValueError(f"{name} has no input '{unknown[:80]}'. It has: {', '.join(known) or 'none to be named'}.")
    missing = [each for each, one in known.items() if one.default is Parameter.empty and each not in bound]
    if missing:
        raise ValueError(f"{name} needs its input '{missing[0]}'.")
    return {each: msgspec.convert(value, known[each].annotation) for each, value in bound.items()}


def parameters(name: str) -> dict[str, Parameter]:
    """Return what rows may bind of a formula: its parameters other than the call."""
    return {each: one for each, one in signature(ROW_FORMULAS[name]).parameters.items() if each != "call"}
