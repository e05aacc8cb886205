"""Removes data that identifies the machine and its user from a trace, and keeps the data that viewers and analyses
need."""

import json
import operator
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Any

import msgspec

from tracekit.analyzers.trace import BOUNDARY, SAFE_KEYS, CaptureInfo, Chunk, Chunks, array_ends, entries, is_secret_key
from tracekit.reports.words import printable

Event = dict[str, msgspec.Raw]

_PRIVATE = re.compile(
    r"stack|host_?\s?name|(?<![a-z])host(?![a-z])|command|cmd_?\s?line|(?<![a-z])argv(?![a-z])|environ"
    r"|user_?\s?name|(?<![a-z])user(?![a-z])|(?<![a-z])cwd(?![a-z])|working_?\s?dir|file_?\s?name|kernel_file|e?sf\Z",
    re.IGNORECASE,
)
"""Names of arguments and metadata that identify the machine or hold call stacks."""

_KEY = re.compile(rb'"([^"\\]{1,80}+)"\s*+:')
_METADATA_EVENT = re.compile(rb'"ph"\s*+:\s*+"M"')
_FRAME, _LAYER = b"python_function", b'"nn.Module: '
_KEPT_METADATA = {
    f'"{name}"'.encode()
    for name in ("process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index")
}
_GAP = b" \t\r\n,"
_END_TRIES = 8
_MOST_JOINED = 16
_NAMES_LISTED = 5

_decode = msgspec.json.Decoder(list[Event]).decode
_decode_args = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Removed:
    """Counts what was removed: frames of call stacks, metadata and arguments by name, and damaged events."""

    def __init__(self) -> None:
        self.stacks = self.damaged = 0
        self.names: Counter[str] = Counter()

    def __str__(self) -> str:
        names = [printable(name[:40]) for name, _ in self.names.most_common(_NAMES_LISTED)]
        more = ", ..." if len(self.names) > _NAMES_LISTED else ""
        parts = [
            f"{self.stacks:,} frames of call stacks" if self.stacks else "",
            f"{self.names.total():,} entries of metadata ({', '.join(names)}{more})" if names else "",
            f"{self.damaged:,} damaged events that could not be read" if self.damaged else "",
        ]
        return ", ".join(part for part in parts if part)


def public_header(text: bytes, removed: Removed, known: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the top-level entries of `text` that are kept, except those in `known`; count the others in `removed`."""
    kept: dict[str, Any] = {}
    values, rest = entries(text.decode("utf-8", "replace").removeprefix("\ufeff"))
    removed.names.update(["text after the trace"] if rest.strip(" \t\r\n,{}") else [])
    for key, value in values.items():
        public = _capture(value) if key == "tracekit" else _public(value, removed)
        if key in SAFE_KEYS and public is not None:
            if key not in known:
                kept[key] = public
        else:
            removed.names[key] += 1
    return kept


def _capture(value: Any) -> Any:
    try:
        return msgspec.to_builtins(msgspec.convert(value, CaptureInfo, strict=False))
    except msgspec.ValidationError:
        return None


def _public(value: Any, removed: Removed) -> Any:
    if isinstance(value, list):
        return [_public(each, removed) for each in value]
    if not isinstance(value, dict):
        return value
    removed.names.update(key for key in value if _is_private(key))
    return {key: _public(each, removed) for key, each in value.items() if not _is_private(key)}


@cache
def _is_private(key: str) -> bool:
    return bool(_PRIVATE.search(key)) or is_secret_key(key)


def public_events(blocks: Iterator[bytes], removed: Removed, header: tuple[str, ...]) -> Iterator[bytes]:
    """Yield the events of a trace, and what follows them, without private values. `header` are the keys before them.

    Text without private names is passed on byte for byte, without decoding it.
    """
    waiting, begun = b"", False
    for chunk in Chunks(chain([b"["], blocks)):
        events, tail = _split(chunk)
        public, waiting = _public_text(waiting, events, removed, chunk.final)
        if public:
            gap = chunk.before if public is events and chunk.before.strip(b" \t\r\n") == b"," else b",\n"
            yield (gap if begun else b"") + public
            begun = True
        if tail is not None:
            yield _closing(tail, removed, header)


def _split(chunk: Chunk) -> tuple[bytes, bytes | None]:
    """Return the events of a chunk, and the text after the list of events; None if the list continues or is cut off."""
    if not chunk.final:
        return chunk.text, None
    ends = list(array_ends(chunk.text))
    whole = (each for each in ends[-_END_TRIES:] if _is_whole(chunk.text[each[1] :]))
    cut_off = (each for each in ends[:_END_TRIES] if _decoded(chunk.text[: each[0]]) is not None)
    end = next(chain(whole, cut_off), None)
    return (chunk.text[: end[0]], chunk.text[end[1] :]) if end else (chunk.text, None)


def _is_whole(tail: bytes) -> bool:
    """Return whether `tail` ends a trace: it is empty, or holds entries and a closing brace."""
    return not tail.strip() or entries(tail.decode("utf-8", "replace"))[1].strip() == "}"


def _closing(tail: bytes, removed: Removed, header: tuple[str, ...]) -> bytes:
    if b"}" not in tail:
        return b"]\n"
    kept = public_header(tail, removed, header)
    return b"]" + b"".join(f",{json.dumps(key)}:{_json(value)}".encode() for key, value in kept.items()) + b"}\n"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _public_text(waiting: bytes, text: bytes, removed: Removed, final: bool) -> tuple[bytes, bytes]:
    """Return the text of the events that are kept, and the incomplete event at the end."""
    if not waiting and not _needs_a_look(text):
        return text, b""
    events, rest = None if waiting else _decoded(text), b""
    whole = events is not None
    if events is None:
        events, rest = _pieces(waiting + text, removed, final)
    kept = [public for event in events if (public := _public_event(event, removed)) is not None]
    if whole and len(kept) == len(events) and all(map(operator.is_, kept, events)):
        return text, b""
    return b",\n".join(map(_encode, kept)), rest


def _needs_a_look(text: bytes) -> bool:
    if _FRAME in text or _METADATA_EVENT.search(text):
        return True
    return any(_is_private(key.decode("utf-8", "replace")) for key in set(_KEY.findall(text)))


def _decoded(text: bytes) -> list[Event] | None:
    try:
        return _decode(b"[" + text.strip(_GAP) + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _pieces(text: bytes, removed: Removed, final: bool) -> tuple[list[Event], bytes]:
    """Return the events of a text that is damaged or ends inside an event, and the rest that the next chunk may
    complete."""
    pieces = BOUNDARY.split(text)
    pieces[:-1] = [piece + b"}" for piece in pieces[:-1]]
    events: list[Event] = []
    at = 0
    while at < len(pieces):
        for joined in range(1, _MOST_JOINED + 1):
            whole = _decoded(b",".join(pieces[at : at + joined]))
            if whole is not None or at + joined >= len(pieces):
                break
        if whole is None and at + joined >= len(pieces) and not final:
            return events, b",".join(pieces[at:])
        removed.damaged += whole is None
        events += whole or []
        at += joined if whole is not None else 1
    return events, b""


def _public_event(event: Event, removed: Removed) -> Event | None:
    """Return the event without private arguments; None if it is a frame of a call stack or metadata that is not
    kept."""
    if bytes(event.get("cat", b"")) == b'"python_function"' and not bytes(event.get("name", b"")).startswith(_LAYER):
        removed.stacks += 1
        return None
    if bytes(event.get("ph", b"")) == b'"M"':
        if bytes(event.get("name", b"")) not in _KEPT_METADATA:
            removed.names[bytes(event.get("name", b"")).decode("utf-8", "replace").strip('"')] += 1
            return None
        event = _with_short_name(event, removed)
    event = _without_private(event, removed)
    if b"{" in bytes(event.get("args", b"")):
        args = _arguments(event)
        public = _without_private(args, removed)
        if len(public) < len(args):
            event = {**event, "args": msgspec.Raw(_encode(public))}
    return event


def _without_private(values: Event, removed: Removed) -> Event:
    private = [key for key in values if _is_private(key)]
    removed.names.update(private)
    return {key: value for key, value in values.items() if key not in private} if private else values


def _arguments(event: Event) -> Event:
    try:
        return _decode_args(event["args"])
    except msgspec.MsgspecError:
        return {}


def _with_short_name(event: Event, removed: Removed) -> Event:
    """Return the event of a process's name, with a command line shortened to its program."""
    args = _arguments(event)
    name = bytes(args.get("name", b"")).decode("utf-8", "replace").strip('"')
    if "process_name" not in bytes(event["name"]).decode() or not ("/" in name or " -" in name):
        return event
    removed.names["command line"] += 1
    program = (name.split() or [""])[0].rsplit("/", 1)[-1]
    return {**event, "args": msgspec.Raw(_encode({**args, "name": program}))}
