"""Read the metadata of a Kineto trace. Only the keys of a short list are kept."""

import json
import re
from typing import Any

import msgspec
import xxhash
from msgspec import field

from tracekit.analyzers.core import Count
from tracekit.analyzers.trace.trace import CaptureInfo, DeviceProperties, ProcessGroup

_KEY = re.compile(r'[\s,{]*+"((?:[^"\\]|\\.)*+)"\s*+:\s*+')
_decode_value = json.JSONDecoder(strict=False).raw_decode
SAFE_KEYS = frozenset(
    (
        *("schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit", "baseTimeNanoseconds", "tracekit"),
        *("record_shapes", "with_stack", "with_flops", "with_modules", "profile_memory"),
        *("cupti_version", "cuda_runtime_version", "cuda_driver_version"),
        *("hip_runtime_version", "hip_driver_version", "roctracer_version", "rocprofiler_version"),
    )
)
"""Top-level keys of a trace that are copied to outputs. Others may contain host names or secrets."""

_NOT_SECRET = {"traceName", "trace_id", "tracekit", "traceEvents"}
_BETWEEN = " \t\r\n,"


class _Device(msgspec.Struct, frozen=True):
    id: Count = 0
    name: str = ""
    sms: Count = field(default=0, name="numSms")
    major: Count = field(default=0, name="computeMajor")
    minor: Count = field(default=0, name="computeMinor")
    memory_bytes: Count = field(default=0, name="totalGlobalMem")

    def properties(self) -> DeviceProperties:
        return DeviceProperties(self.id, self.name, self.sms, (self.major, self.minor), self.memory_bytes)


class _Group(msgspec.Struct, frozen=True):
    name: str = field(default="", name="pg_name")
    ranks: tuple[Count, ...] = ()


class _Distributed(msgspec.Struct, frozen=True):
    rank: Count | None = None
    world_size: Count | None = None
    node: Count | None = None
    pg_config: Any = ()

    def groups(self) -> tuple[ProcessGroup, ...]:
        """Return the groups whose description is readable."""
        try:
            groups = msgspec.convert(self.pg_config, tuple[_Group, ...], strict=False)
        except msgspec.ValidationError:
            return ()
        return tuple(ProcessGroup(group.name, tuple(sorted(group.ranks))) for group in groups)


class _Known(msgspec.Struct):
    """The known keys. Each is converted separately, so that one of another type does not affect the others."""

    base_ns: Count = field(default=0, name="baseTimeNanoseconds")
    devices: tuple[_Device, ...] = field(default=(), name="deviceProperties")
    distributed: _Distributed = field(default=_Distributed(), name="distributedInfo")
    host_name: str = ""
    capture: CaptureInfo | None = field(default=None, name="tracekit")


class Header(msgspec.Struct, frozen=True):
    """Values of known top-level keys.

    `secrets` counts the entries that look like an environment or a secret. `unreadable` names known keys whose values
    have another type, and says whether metadata before the events is broken, as does `broken`. `whole` says whether the
    document is closed. `more_events` counts the events of further lists under the key traceEvents. `rest` is the text
    after the document.
    """

    base_ns: int
    devices: tuple[DeviceProperties, ...]
    rank: int | None
    world_size: int | None
    host: str
    groups: tuple[ProcessGroup, ...]
    capture: CaptureInfo | None
    secrets: int
    unreadable: tuple[str, ...]
    broken: bool
    whole: bool
    more_events: int
    rest: str


def read_header(head: str, tail: str) -> Header:
    """Read the text before the events ("" for a bare array) and the text after them."""
    before, broken = entries(head)
    after, rest = entries(tail) if head else ({}, tail)
    merged = before | after
    known, unreadable = _known(merged)
    rest, is_broken = rest.lstrip(_BETWEEN), bool(broken.strip(_BETWEEN + "{"))
    more = after.get("traceEvents")
    return Header(
        base_ns=known.base_ns,
        devices=tuple(d.properties() for d in known.devices),
        rank=known.distributed.rank,
        world_size=known.distributed.world_size,
        host=_host(known),
        groups=known.distributed.groups(),
        capture=known.capture,
        secrets=sum(looks_secret(key, value) for key, value in merged.items() if key not in _NOT_SECRET),
        unreadable=(*unreadable, *(["text before the events"] if is_broken else [])),
        broken=is_broken,
        whole=not head or rest.startswith("}"),
        more_events=len(more) if isinstance(more, list) else 0,
        rest=rest[1:].strip() if head and rest.startswith("}") else "" if head else rest.strip(),
    )


def device_properties(text: str) -> tuple[DeviceProperties, ...]:
    """Return the devices that Kineto's text describes; nothing if it is not readable."""
    try:
        described = msgspec.json.decode(text, type=tuple[_Device, ...], strict=False) if text else ()
    except (msgspec.DecodeError, RecursionError):
        return ()
    return tuple(device.properties() for device in described)


def _host(known: _Known) -> str:
    """Return a hash of the host's name, else the number of its node in the job."""
    if known.host_name:
        return xxhash.xxh3_64_hexdigest(known.host_name.encode("utf-8", "replace"))
    return "" if known.distributed.node is None else f"node {known.distributed.node}"


def entries(text: str) -> tuple[dict[str, Any], str]:
    """Return the readable key-value pairs of a JSON object's text, and the text after them."""
    values: dict[str, Any] = {}
    at = 0
    while key := _KEY.match(text, at):
        try:
            value, end = _decode_value(text, key.end())
            clean = _clean(value)
        except (ValueError, RecursionError):
            break
        at, name = end, key[1]
        lists = name == "traceEvents" and isinstance(clean, list)
        values[name] = [*values.get(name, []), *clean] if lists else clean
    return values, text[at:]


def _clean(value: Any) -> Any:
    """Replace unpaired surrogates, which cannot be written to a file."""
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


_SECRET_KEY = re.compile(
    r"(?<![a-z])(env|environ|environment|auth|token)(?![a-z])|env_?vars?(?![a-z])|(auth|access|hub|api|bearer)_?token"
    r"|secret|passw|credential|(api|access|private)_?key",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"(PATH|HOME|USER|HOSTNAME|PWD|SHELL|[A-Z][A-Z0-9]*(_[A-Z0-9]+)+)\Z")
_TOKEN = re.compile(
    r"\b(hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|ASIA|AIza)[A-Za-z0-9_-]{12,}"
    r"|\beyJ[\w-]{8,}\.eyJ|-----BEGIN [A-Z ]*PRIVATE KEY"
)
_RANDOM = re.compile(r"(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?=[^0-9]*[0-9])[A-Za-z0-9+/_=-]{32,}\Z")
_MAX_DEPTH = 16


def is_secret_key(key: str) -> bool:
    """Return whether an entry with this name holds an environment or a secret."""
    return bool(_SECRET_KEY.search(key))


def looks_secret(key: str, value: object) -> bool:
    """Return whether a top-level entry looks secret, by its key, its value, or anything in the value."""
    return (isinstance(value, str) and bool(_RANDOM.match(value))) or _secret_entry(key, value, 0)


def _secret_entry(key: str, value: object, depth: int) -> bool:
    if isinstance(value, dict):
        if value and _SECRET_KEY.search(key):
            return True
        return depth < _MAX_DEPTH and any(_secret_entry(str(k), v, depth + 1) for k, v in value.items())
    if isinstance(value, list):
        return depth < _MAX_DEPTH and any(_secret_entry(key, v, depth + 1) for v in value)
    return isinstance(value, str) and value != "" and _secret_text(key, value)


def _secret_text(key: str, value: str) -> bool:
    return bool(_SECRET_KEY.search(key) or _VARIABLE.match(key) or _TOKEN.search(value))
