"""What a Kineto trace says about itself: only what is on the list is kept."""

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from tracekit.analyzers.capture_info import CaptureInfo
from tracekit.analyzers.readers.secrets import looks_secret
from tracekit.analyzers.trace import DeviceProperties

_KEY = re.compile(r'[\s,{]*+"((?:[^"\\]|\\.)*+)"\s*+:\s*+')
_decode_value = json.JSONDecoder(strict=False).raw_decode
_NOT_SECRET = {"traceName", "trace_id", "tracekit"}


class _Device(msgspec.Struct, frozen=True):
    id: int = 0
    name: str = ""
    sms: int = field(default=0, name="numSms")
    major: int = field(default=0, name="computeMajor")
    minor: int = field(default=0, name="computeMinor")
    memory_bytes: int = field(default=0, name="totalGlobalMem")

    def properties(self) -> DeviceProperties:
        return DeviceProperties(self.id, self.name, self.sms, (self.major, self.minor), self.memory_bytes)


class _Distributed(msgspec.Struct, frozen=True):
    rank: int | None = None
    world_size: int | None = None


class _Known(msgspec.Struct):
    """The keys that are read; each by itself, so that one of another type leaves the others."""

    base_ns: Annotated[int, Meta(ge=0, le=2**62)] = field(default=0, name="baseTimeNanoseconds")
    devices: tuple[_Device, ...] = field(default=(), name="deviceProperties")
    distributed: _Distributed = field(default=_Distributed(), name="distributedInfo")
    capture: CaptureInfo | None = field(default=None, name="tracekit")


@dataclass(frozen=True)
class Header:
    """What is kept of the top-level keys.

    `secrets` counts the entries that look like an environment or a secret, `unreadable` names known keys whose values
    are of other types, and `whole` says that the text went to its end.
    """

    base_ns: int
    devices: tuple[DeviceProperties, ...]
    rank: int | None
    world_size: int | None
    capture: CaptureInfo | None
    secrets: int
    unreadable: tuple[str, ...]
    whole: bool


def read_header(head: str, tail: str) -> Header:
    """From the text before the events, and the text after them ("" in a bare array)."""
    before, _ = _entries(head)
    after, rest = _entries(tail)
    entries = before | after
    known, unreadable = _known(entries)
    return Header(
        base_ns=known.base_ns,
        devices=tuple(d.properties() for d in known.devices),
        rank=known.distributed.rank,
        world_size=known.distributed.world_size,
        capture=known.capture,
        secrets=sum(looks_secret(key, value) for key, value in entries.items() if key not in _NOT_SECRET),
        unreadable=unreadable,
        whole=not head or rest.lstrip(" \t\r\n,").startswith("}"),
    )


def _entries(text: str) -> tuple[dict[str, Any], str]:
    """Key-value pairs of a JSON object's text, as far as it can be read, and what follows them."""
    entries: dict[str, Any] = {}
    at = 0
    while key := _KEY.match(text, at):
        try:
            value, at = _decode_value(text, key.end())
        except (ValueError, RecursionError):
            break
        entries[key[1]] = _clean(value)
    return entries, text[at:]


def _clean(value: Any) -> Any:
    """Strings and the values of objects and lists without halves of surrogate pairs, which no file can hold."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _known(entries: dict[str, Any]) -> tuple[_Known, tuple[str, ...]]:
    values, unreadable = {}, []
    for known in msgspec.structs.fields(_Known):
        if known.encode_name in entries:
            try:
                values[known.name] = msgspec.convert(entries[known.encode_name], known.type, strict=False)
            except msgspec.ValidationError:
                unreadable.append(known.encode_name)
    return _Known(**values), tuple(unreadable)
