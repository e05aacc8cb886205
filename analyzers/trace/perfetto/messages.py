"""Perfetto's message types, imported when a trace of it is read (the extra `perfetto`)."""

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import msgspec

from tracekit.analyzers.core import MissingPackageError, installing


def messages() -> Any:
    """Return Perfetto's module of messages. Raises MissingPackageError without the package."""
    try:
        return import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    except ImportError as error:
        raise MissingPackageError(
            "A Perfetto trace needs Perfetto's Python package to be read.",
            f"{'The package perfetto is not installed' if error.name == 'perfetto' else error}.",
            f"{installing('perfetto')}. Or export JSON: export_chrome_trace('trace.json.gz').",
        ) from error


def decode_error() -> type[Exception]:
    """Return the exception that decoding raises for bytes that are not a message."""
    error: type[Exception] = import_module("google.protobuf.message").DecodeError
    return error


def text(value: str | bytes) -> str:
    """Return a string of a message. protobuf returns bytes for a string that is not UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


_ARGUMENT_NAMES_OF_LAUNCHES = 1001
"""Field of InternedData with the names of arguments of compute launches. Perfetto's package does not declare it."""

Strings = dict[int, str]


@dataclass
class Interned:
    """The incremental state of a sequence. `valid` is False after lost packets, until the sequence begins again."""

    names: Strings = field(default_factory=dict)
    categories: Strings = field(default_factory=dict)
    argument_names: Strings = field(default_factory=dict)
    argument_strings: Strings = field(default_factory=dict)
    stages: Strings = field(default_factory=dict)
    launch_arguments: Strings = field(default_factory=dict)
    nested: dict[bytes, Any] = field(default_factory=dict)
    """Lists and dictionaries among the arguments, by their bytes, because most events share their shapes with other
    events."""
    default_track: int = 0
    clock: int = 0
    valid: bool = False

    def add(self, data: Any, messages: Any) -> None:
        """Add the entries of a packet's interned data. `messages` is Perfetto's module of messages."""
        self.names |= {each.iid: text(each.name) for each in data.event_names}
        self.categories |= {each.iid: text(each.name) for each in data.event_categories}
        self.argument_names |= {each.iid: text(each.name) for each in data.debug_annotation_names}
        self.argument_strings |= {
            each.iid: each.str.decode("utf-8", "replace") for each in data.debug_annotation_string_values
        }
        self.stages |= {each.iid: text(each.name) for each in data.gpu_specifications}
        self.launch_arguments |= _undeclared(data, messages)


def _undeclared(data: Any, messages: Any) -> Strings:
    from google.protobuf.unknown_fields import UnknownFieldSet

    named = (f.data for f in UnknownFieldSet(data) if f.field_number == _ARGUMENT_NAMES_OF_LAUNCHES)
    entries = (messages.EventName.FromString(raw) for raw in named if isinstance(raw, bytes))
    return {each.iid: text(each.name) for each in entries}


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
