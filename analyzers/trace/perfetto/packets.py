"""The packets of a Perfetto trace, split without decoding them, and the messages in them, by Perfetto's own package.

The package is imported when a trace is read (the extra `perfetto`).
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import msgspec

from tracekit.analyzers.core import MissingPackageError, installing

PACKET_TAG = 0x0A
"""Tag of `Trace.packet`: field 1, length-delimited."""

_RUN_BYTES = 1 << 20
_LARGEST_PACKET = 64 << 20
_LONGEST_VARINT = 10
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_SNIFFED_PACKETS = 3


class Framing:
    """Yields runs of packets, and says afterwards how many bytes at the end are not packets, and why."""

    def __init__(self) -> None:
        self.rest = 0
        self.why = ""

    def runs(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield consecutive whole packets in pieces of about a megabyte."""
        buffer = b""
        for block in blocks:
            buffer += block
            if len(buffer) < _RUN_BYTES:
                continue
            end, broken = _whole(buffer)
            yield buffer[:end]
            buffer = buffer[end:]
            if broken or len(buffer) > _LARGEST_PACKET:
                break
        end, broken = _whole(buffer)
        yield buffer[:end]
        self.rest = len(buffer) - end + sum(map(len, blocks))
        if self.rest:
            cut = "its last packet is cut off"
            self.why = f"{self.rest:,} bytes at its end are not packets" if broken else cut


def each_packet(packets: bytes) -> Iterator[bytes]:
    """Yield whole packets one by one, each with its tag and length."""
    at = 0
    while at < len(packets):
        length, start = _varint(packets, at + 1)
        yield packets[at : start + length]
        at = start + length


def looks_like_packets(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a Perfetto trace: its packets' fields fill the packets
    exactly."""
    at, fields = 0, 0
    for _ in range(_SNIFFED_PACKETS):
        if at >= len(head):
            break
        length, start = _varint(head, at + 1) if head[at] == PACKET_TAG else (-1, at)
        if not 0 < length <= _LARGEST_PACKET:
            return False
        seen = _fields(head, start, start + length)
        if seen < 0:
            return False
        at, fields = start + length, fields + seen
    return fields > 0


def _whole(data: bytes) -> tuple[int, bool]:
    """Return where the last whole packet ends, and whether the bytes after it cannot be the beginning of a packet."""
    at = 0
    while at < len(data):
        if data[at] != PACKET_TAG:
            return at, True
        length, start = _varint(data, at + 1)
        if length > _LARGEST_PACKET or start - at > _LONGEST_VARINT:
            return at, True
        if length < 0 or start + length > len(data):
            return at, False
        at = start + length
    return at, False


def _fields(data: bytes, at: int, end: int) -> int:
    """Return the number of whole fields of a message, up to the end of `data`; -1 if it is not a message."""
    seen = 0
    while at < end and at < len(data):
        tag, at = _varint(data, at)
        size, at = _size(data, at, tag & 7) if tag >= 8 else (-1, at)
        if size == _UNKNOWN:
            break
        at += size
        if size < 0 or at > end:
            return -1
        seen += at <= len(data)
    return seen


_UNKNOWN = -2


def _size(data: bytes, at: int, wire: int) -> tuple[int, int]:
    """Return the size of a field's value in bytes, and its offset. A size of -1 means that there is no field, -2 that
    it is cut off."""
    if wire in (_FIXED64, _FIXED32):
        return (8 if wire == _FIXED64 else 4), at
    if wire not in (_VARINT, _DELIMITED):
        return -1, at
    value, after = _varint(data, at)
    if value < 0:
        return _UNKNOWN, after
    return (0 if wire == _VARINT else value), after


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the offset after it; -1 if the data end inside it or it is too long."""
    value = shift = 0
    while at < len(data) and shift < 7 * _LONGEST_VARINT:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    return -1, at


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


class Interned(msgspec.Struct):
    """The incremental state of a sequence. `valid` is False after lost packets, until the sequence begins again."""

    names: Strings = msgspec.field(default_factory=dict)
    categories: Strings = msgspec.field(default_factory=dict)
    argument_names: Strings = msgspec.field(default_factory=dict)
    argument_strings: Strings = msgspec.field(default_factory=dict)
    stages: Strings = msgspec.field(default_factory=dict)
    launch_arguments: Strings = msgspec.field(default_factory=dict)
    nested: dict[bytes, Any] = msgspec.field(default_factory=dict)
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
