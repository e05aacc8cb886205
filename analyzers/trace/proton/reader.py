"""Read a profile of Proton as a trace."""

import re
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from msgspec import Struct, field

from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import problems
from tracekit.analyzers.trace.problems import problem
from tracekit.analyzers.trace.proton.scopes import ROOT, TRANSPARENT, Launch, Profile, below_root, host_table
from tracekit.analyzers.trace.source import Source
from tracekit.analyzers.trace.trace import DEVICE, DeviceProperties, Metadata, Trace


def read(source: Source, *, is_tree: bool) -> Trace:
    """Read a profile. Raises InputError if it contains no kernel."""
    profile, replaced = source.decoded(lambda data: _profile(data, is_tree))
    damage = source.damage or profile.damage
    if not profile.launches:
        raise InputError(
            f"{source.name} contains no kernel that Proton recorded.",
            _why_empty(damage, profile.unreadable),
            "Launch kernels between proton.start() and proton.finalize().",
        )
    host, threads = host_table(profile.launches)
    rows = [
        problem("truncated", int(bool(damage)), damage),
        problem("skipped-events", profile.unreadable),
        problem("bad-utf8", replaced),
        problem("no-host-timeline", 0 if is_tree else len(profile.launches)),
        problem("summed-launches", len(profile.launches) if is_tree else 0),
        problem("no-shapes", 1),
    ]
    metadata = Metadata(format="proton", devices=profile.devices, threads=threads)
    return Trace(metadata, host, _device(profile), problems.table(rows))


def _profile(data: bytes, is_tree: bool) -> tuple[Profile, int]:
    """Return the profile, and the number of characters that are not UTF-8."""
    text = data.decode("utf-8", "replace")
    return (tree if is_tree else timeline)(text.encode()), text.count("\ufffd")


def _why_empty(damage: str, unreadable: int) -> str:
    if damage:
        return f"It ends early: {damage}."
    if unreadable:
        return f"The times or counts of {unreadable:,} of its entries are not such numbers."
    return "None of its scopes launched a kernel."


def _device(profile: Profile) -> pd.DataFrame:
    launches = profile.launches
    return DEVICE.partial(
        {
            "start_ns": [each.start_ns for each in launches],
            "duration_ns": [each.duration_ns for each in launches],
            "device": [max(each.device, 0) for each in launches],
            "stream": [each.stream for each in launches],
            "category": ["kernel"] * len(launches),
            "name": [each.name for each in launches],
            "external_id": np.arange(len(launches)),
        }
    )


_TIME, _COUNT, _DEVICE = "time (ns)", "count", "device_id"
_MOST_ROWS, _MOST_ROWS_IN_ALL = 1_000, 1_000_000
"""Most launches of a kernel in a scope, and of all, that get one row each."""
_LATEST_NS, _LARGEST_DEVICE = 2**62, 2**31
_DEEPEST = 500
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_CLOSING = {b"[": b"]", b"{": b"}"}


class _Frame(Struct):
    name: str = ""


class _Node(Struct):
    """A node of the tree; the last entry of the file describes devices instead."""

    frame: _Frame = field(default_factory=_Frame)
    metrics: dict[str, Any] = {}
    children: list["_Node"] = []
    cuda: dict[str, dict[str, Any]] = field(name="CUDA", default_factory=dict)


_decode_tree = msgspec.json.Decoder(list[_Node]).decode


def tree(data: bytes) -> Profile:
    """Return the launches in the order of the tree, laid end to end, each with the mean time of its kernel in its
    scope.

    A truncated tree is read up to its last whole node.
    """
    nodes, damage = _nodes(data)
    profile = Profile(damage=damage, devices=_devices(nodes))
    pending: list[tuple[_Node, tuple[str, ...]]] = [(node, ()) for node in reversed(nodes)]
    at = 0
    while pending:
        node, scopes = pending.pop()
        at = _add_node(node, scopes, at, profile)
        unnamed = node.frame.name in TRANSPARENT or (node.frame.name == ROOT and not scopes)
        below = scopes if unnamed else (*scopes, node.frame.name)
        if len(below) < _DEEPEST:
            pending += [(child, below) for child in reversed(node.children)]
        else:
            profile.unreadable += len(node.children)
    return profile


def _add_node(node: _Node, scopes: tuple[str, ...], at: int, profile: Profile) -> int:
    """Add the launches of a node's kernel, and return when the last of them ends."""
    total, count = _number(node.metrics.get(_TIME)), _number(node.metrics.get(_COUNT))
    if _TIME in node.metrics and (total is None or count is None or at + total > _LATEST_NS):
        profile.unreadable += 1
        return at
    if not total or not count:
        return at
    rows = max(1, min(count, _MOST_ROWS, _MOST_ROWS_IN_ALL - len(profile.launches)))
    profile.summed += count if count > 1 else 0
    device = _number(node.metrics.get(_DEVICE), below=_LARGEST_DEVICE)
    for row in range(rows):
        end = at + (total * (row + 1) // rows - total * row // rows)
        profile.launches.append(Launch(scopes, node.frame.name, at, end - at, -1 if device is None else device))
        at = end
    return at


def _number(value: Any, below: float = 1e18) -> int | None:
    """Return a count or a time, which may be written as text; None for any other value."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < below else None  # NaN is not


def _nodes(data: bytes) -> tuple[list[_Node], str]:
    try:
        return _decode_tree(data), ""
    except RecursionError:
        return [], "its scopes are nested too deeply"
    except msgspec.DecodeError as error:
        try:
            return _decode_tree(_closed(data)), "its JSON ends early"
        except (msgspec.DecodeError, RecursionError):
            return [], f"its JSON is damaged: {error}"


def _closed(data: bytes) -> bytes:
    """Return truncated JSON up to its last whole object, with all open brackets closed."""
    opened: list[bytes] = []
    end, open_there = 0, b""
    for token in _TOKEN.finditer(data):
        text = token[0]
        if text in _CLOSING:
            opened.append(_CLOSING[text])
        elif text in (b"]", b"}"):
            if not opened or opened.pop() != text:
                break
            if text == b"}" and opened and opened[-1] == b"]":
                end, open_there = token.end(), b"".join(reversed(opened))
    return data[:end] + open_there


def _devices(nodes: list[_Node]) -> tuple[DeviceProperties, ...]:
    described = {number: each for node in nodes for number, each in node.cuda.items() if _number(number) is not None}
    return tuple(
        DeviceProperties(
            id=int(number),
            name="",
            sms=_number(each.get("num_sms")) or 0,
            compute_capability=divmod(_number(each.get("arch")) or 0, 10),
        )
        for number, each in described.items()
    )


_BETWEEN_EVENTS = b'},{"args"'
_A_KERNEL = b'"ph":"X"'
_LATEST_US = 1e15
_LARGEST_STREAM = 2**62


class _Args(Struct):
    call_stack: list[str] = []


class _Event(Struct):
    name: str = ""
    cat: str = ""
    ts: float = -1.0
    dur: float = -1.0
    tid: int = -1
    args: _Args = field(default_factory=_Args)


class _Document(Struct):
    events: list[_Event] = field(name="traceEvents", default_factory=list)


_decode_document = msgspec.json.Decoder(_Document).decode


def timeline(data: bytes) -> Profile:
    """Return the launches of all documents, by start. A document that is cut off is read up to the cut."""
    profile = Profile()
    for line in filter(None, map(bytes.strip, data.split(b"\n"))):
        _add_line(line, profile)
    profile.launches.sort(key=lambda launch: (launch.start_ns, launch.stream))
    return profile


def _add_line(line: bytes, profile: Profile) -> None:
    events, damage = _events(line)
    if damage:
        profile.damage = damage
        profile.unreadable += line.count(_A_KERNEL) - len(events)
    for event in events:
        if event.cat == "kernel" and 0 <= event.ts < _LATEST_US and 0 <= event.dur < _LATEST_US:
            profile.launches.append(_launch(event))
        else:
            profile.unreadable += 1


def _launch(event: _Event) -> Launch:
    scopes, times = below_root(event.args.call_stack), (round(event.ts * 1000), round(event.dur * 1000))
    stream = event.tid if abs(event.tid) < _LARGEST_STREAM else -1
    if scopes[-1:] == (event.name,):
        scopes = scopes[:-1]
    return Launch(scopes, event.name, *times, stream=stream)


def _events(line: bytes) -> tuple[list[_Event], str]:
    try:
        return _decode_document(line).events, ""
    except (msgspec.DecodeError, RecursionError) as error:
        whole = line[: max(line.rfind(_BETWEEN_EVENTS), 0)]
        try:
            return _decode_document(whole + b"}]}").events, "its JSON ends early"
        except (msgspec.DecodeError, RecursionError):
            return [], f"its JSON is damaged: {error}"
