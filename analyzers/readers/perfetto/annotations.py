"""Reads the arguments of an event from the annotations of a Perfetto event, in the form of Kineto's JSON."""

from typing import Any

import msgspec

from tracekit.analyzers.readers.perfetto.interning import Interned
from tracekit.analyzers.readers.perfetto.message_types import text

Arguments = dict[str, Any]

_KINETO = "metadata"
"""Annotation in which Kineto's builder puts all arguments, as a JSON object without its braces."""
_NUMBERS = frozenset(("int_value", "uint_value", "double_value", "bool_value", "pointer_value"))


def arguments(annotations: Any, interned: Interned) -> Arguments:
    """Return the arguments by name."""
    values = {_name(each, interned): _value(each, interned) for each in annotations}
    inside = values.pop(_KINETO, None)
    if isinstance(inside, str):
        values = _kineto(inside) | values
    return values


def _kineto(inside: str) -> Arguments:
    try:
        return msgspec.json.decode(f"{{{inside}}}" if not inside.startswith("{") else inside, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {_KINETO: inside}


def _name(annotation: Any, interned: Interned) -> str:
    return interned.argument_names.get(annotation.name_iid, "") if annotation.name_iid else text(annotation.name)


def _value(annotation: Any, interned: Interned) -> Any:
    kind = annotation.WhichOneof("value")
    if kind == "string_value":
        return text(annotation.string_value)
    if kind in _NUMBERS:
        return getattr(annotation, kind)
    if kind == "string_value_iid":
        return interned.argument_strings.get(annotation.string_value_iid, "")
    if kind is not None:
        return None
    key = annotation.SerializeToString()
    if key not in interned.nested:
        interned.nested[key] = _nested(annotation, interned)
    return interned.nested[key]


def _nested(annotation: Any, interned: Interned) -> Any:
    """Return a list or a dictionary. PyTorch writes an empty list as an entry without values."""
    if annotation.dict_entries:
        return {_name(each, interned): _value(each, interned) for each in annotation.dict_entries}
    return [_value(each, interned) for each in annotation.array_values]
