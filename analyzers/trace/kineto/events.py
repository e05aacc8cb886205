"""A Kineto event and its arguments as typed structs.

They have only the fields that are needed, and sentinels for absent values.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, field

from tracekit.analyzers.core import facts

BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions that msgspec raises for JSON that is malformed, of other types, or not UTF-8."""

PHASES = frozenset("BEXiIpPCbneSTFstfNODMVvRc()aA,=")
"""The phases of the Trace Event Format. An event of any other phase is damaged."""

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Event(msgspec.Struct, gc=False):
    """One event. `ts` and `args` stay JSON text until their columns are built."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: Raw = Raw(b"null")
    dur: float | None = math.nan
    args: Raw = Raw(b"{}")


class HostArgs(msgspec.Struct, gc=False):
    correlation: Int64 = -1
    external_id: Int64 = field(default=-1, name="External id")
    sequence: Int64 = field(default=-1, name="Sequence number")
    forward_thread: Int64 = field(default=-1, name="Fwd thread id")
    shapes: Raw = field(default=Raw(), name="Input Dims")
    dtypes: Raw = field(default=Raw(), name="Input type")
    values: Raw = field(default=Raw(), name="Concrete Inputs")
    strides: Raw = field(default=Raw(), name="Input Strides")


class DeviceArgs(msgspec.Struct, gc=False):
    device: Int32 = -1
    stream: Int64 = -1
    correlation: Int64 = -1
    external_id: Int64 = field(default=-1, name="External id")
    bytes: Int64 = -1
    grid: Raw = Raw()
    block: Raw = Raw()
    registers: Int32 = field(default=-1, name="registers per thread")
    shared_memory: Int64 = field(default=-1, name="shared memory")
    occupancy: float = field(default=math.nan, name="est. achieved occupancy %")
    graph: Int64 = field(default=-1, name="graph id")
    graph_node: Int64 = field(default=-1, name="graph node id")


class CollectiveArgs(msgspec.Struct, gc=False):
    name: str = field(default="", name="Collective name")
    sent: Int64 = field(default=0, name="In msg nelems")
    received: Int64 = field(default=0, name="Out msg nelems")
    dtype: str = ""
    ranks: Int64 = field(default=0, name="Group size")
    group: str = field(default="", name="Process Group Name")
    sequence: Int64 = field(default=-1, name="Seq")
    source: Int64 = field(default=-1, name="Src Rank")
    target: Int64 = field(default=-1, name="Dst Rank")


class MemoryArgs(msgspec.Struct, gc=False):
    allocated: Int64 = field(default=0, name="Total Allocated")
    device_kind: Int64 = field(default=0, name="Device Type")


class MoveArgs(msgspec.Struct, gc=False):
    allocated: Int64 = field(default=0, name="Total Allocated")
    bytes: Int64 = field(default=0, name="Bytes")
    address: Int64 = field(default=0, name="Addr")
    device_kind: Int64 = field(default=0, name="Device Type")
    device: Int64 = field(default=-1, name="Device Id")


class ThreadArgs(msgspec.Struct, gc=False):
    name: str = ""


_SAMPLE_BYTES = 1 << 18
_OLD_SPELLINGS = (
    (b'"external id"', b'"External id"'),
    (b'"Input dims"', b'"Input Dims"'),
    (b'"Input Types"', b'"Input type"'),
    (b'"Input types"', b'"Input type"'),
)

_decode_events = msgspec.json.Decoder(list[Event]).decode
_decode_event = msgspec.json.Decoder(Event).decode
_decode_elements = msgspec.json.Decoder(list[Raw]).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode

_Args = TypeVar("_Args", HostArgs, DeviceArgs, CollectiveArgs, MemoryArgs, MoveArgs, ThreadArgs)


def decode_events(text: bytes) -> list[Event]:
    """Decode JSON objects separated by commas. Raises one of BROKEN."""
    return _decode_events(b"".join((b"[", text, b"]")))


def decode_mistyped(text: bytes) -> Event:
    """Decode one JSON object; a field of another type becomes absent. Raises one of BROKEN."""
    return _known_fields(Event, _decode_fields(text))


def decode_each(text: bytes) -> list[tuple[Event | None, bool]] | None:
    """Return (event, whether its fields have their types) for each element of valid JSON; None if the JSON is not
    valid.

    An element that is not an object gives no event.
    """
    try:
        text.decode()
        elements = _decode_elements(b"".join((b"[", text, b"]")))
    except BROKEN:
        return None
    return [_decode_element(element) for element in elements]


def _decode_element(text: Raw) -> tuple[Event | None, bool]:
    try:
        return _decode_event(text), True
    except BROKEN:
        pass
    try:
        return decode_mistyped(bytes(text)), False
    except BROKEN:
        return None, False


def decode_args(kind: type[_Args], texts: Sequence[Raw]) -> list[_Args]:
    """Decode the arguments of many events; a value of another type becomes absent."""
    text = b"[" + b",".join(texts) + b"]"
    sample = text[:_SAMPLE_BYTES]
    for old, new in _OLD_SPELLINGS:
        if old in sample:
            text = text.replace(old, new)
    try:
        return msgspec.json.decode(text, type=list[kind])  # type: ignore[valid-type]
    except BROKEN:
        return [_decode_mistyped_args(kind, bytes(t)) for t in texts]


def _decode_mistyped_args(kind: type[_Args], text: bytes) -> _Args:
    try:
        return _known_fields(kind, _decode_fields(text))
    except BROKEN:
        return kind()


def _known_fields(kind: Any, fields: dict[str, Raw]) -> Any:
    values = {}
    for key, name, decode in _field_decoders(kind):
        if key in fields:
            try:
                values[name] = decode(fields[key])
            except BROKEN:
                continue
    return kind(**values)


@cache
def _field_decoders(kind: Any) -> list[tuple[str, str, Callable[[Raw], Any]]]:
    """Return (key in the JSON, name, decoder) for each field of a struct."""
    fields = msgspec.structs.fields(kind)
    return [(f.encode_name, f.name, msgspec.json.Decoder(f.type, strict=False).decode) for f in fields]


Kind = Literal[
    "op", "range", "runtime", "module", "overhead", "python", "kernel", "memcpy", "memset", "not work", "unknown"
]

HOST_KINDS: tuple[Kind, ...] = ("op", "range", "runtime", "module", "overhead", "python")
PYTHON_FRAME = "python_frame"
"""Category of a call of a Python function that is not a module."""
DEVICE_KINDS: tuple[Kind, ...] = ("kernel", "memcpy", "memset")

_FACTS = facts(__file__)
_NAMED: dict[str, Kind] = _FACTS["named"]
_NOT_WORK = frozenset(_FACTS["not_work"])
_SUFFIXES: dict[str, Kind] = _FACTS["suffixes"]
_BACKENDS = ("gpu", "xpu", "mtia", "hpu", "privateuse1", "hip", "roctracer", "glow")


@lru_cache(maxsize=1024)
def kind_of(category: str) -> Kind:
    """Return the kind of a category: look up known names in any case (traces of 2021 wrote `Kernel`), then the
    backend's prefix and suffix (xpu_memcpy)."""
    name = category.lower()
    if name in _NAMED:
        return _NAMED[name]
    if name in _NOT_WORK:
        return "not work"
    if name.startswith(_BACKENDS):
        return _SUFFIXES.get(name.rpartition("_")[2], "unknown")
    return "unknown"
