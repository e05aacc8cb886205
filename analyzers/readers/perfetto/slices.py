"""Turn slices of tracks into events as Kineto writes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from tracekit.analyzers.readers.events import Event
from tracekit.analyzers.readers.perfetto.annotations import Arguments, arguments
from tracekit.analyzers.readers.perfetto.inferred_categories import inferred_category
from tracekit.analyzers.readers.perfetto.interning import Interned
from tracekit.analyzers.readers.perfetto.message_types import text
from tracekit.analyzers.readers.perfetto.pairing import UNENDED
from tracekit.analyzers.readers.perfetto.tracks import Thread, Tracks

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Slice:
    """A slice at its beginning. Its thread is known once all tracks are."""

    track: int
    time_ns: int
    category: str
    name: str
    arguments: Raw
    keys: tuple[str, ...]
    """Names of the arguments, from which the category of a slice without one is inferred."""


def slice_of(one: Any, track: int, time_ns: int, interned: Interned) -> Slice:
    """Return the slice that a TrackEvent begins."""
    names = [*map(text, one.categories), *(interned.categories.get(number, "") for number in one.category_iids)]
    name = text(one.name) or interned.names.get(one.name_iid, "")
    values = arguments(one.debug_annotations, interned) if one.debug_annotations else {}
    return Slice(track, time_ns, names[0] if names else "", name, encoded(values), () if names else tuple(values))


def events(slices: Sequence[Slice], ends: Sequence[int], tracks: Tracks, last_ns: int) -> list[Event]:
    """Return the events of slices with their ends. A slice without an end lasts until `last_ns`."""
    lanes = {uuid: _Lane(uuid, tracks) for uuid in {each.track for each in slices}}
    return [
        lanes[one.track].event(one, (last_ns if end == UNENDED else end) - one.time_ns)
        for one, end in zip(slices, ends, strict=True)
    ]


def event(name: str, category: str, thread: Thread, start_ns: int, duration_ns: int, arguments: Raw) -> Event:
    """Return a complete event."""
    sign, (whole, rest) = b"-" if start_ns < 0 else b"", divmod(abs(start_ns), 1000)
    return Event(
        ph="X",
        cat=category,
        name=name,
        pid=thread[0],
        tid=thread[1],
        ts=Raw(b"%s%d.%03d" % (sign, whole, rest)),
        dur=duration_ns / 1000,
        args=arguments,
    )


def encoded(values: Arguments) -> Raw:
    """Return arguments as JSON."""
    return Raw(_encode(values))


class _Lane:
    """Values that the events of one track share."""

    def __init__(self, uuid: int, tracks: Tracks) -> None:
        self._thread, self._name, self._process = tracks.thread(uuid), tracks.name(uuid), tracks.process_name(uuid)

    def event(self, one: Slice, duration_ns: int) -> Event:
        category = one.category or inferred_category(one.name, one.keys, self._thread[0], self._name, self._process)
        return event(one.name, category, self._thread, one.time_ns, duration_ns, one.arguments)
