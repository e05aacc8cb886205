"""Read a `.chrome_trace` of Proton: one JSON document per line, with the kernels of one stream."""

import msgspec
from msgspec import Struct, field

from tracekit.analyzers.readers.proton.launches import Launch, Profile, below_root

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


_decode = msgspec.json.Decoder(_Document).decode


def timeline(data: bytes) -> Profile:
    """Return the launches of all documents, by start. A document that is cut off is read up to the cut."""
    profile = Profile()
    for line in filter(None, map(bytes.strip, data.split(b"\n"))):
        _add(line, profile)
    profile.launches.sort(key=lambda launch: (launch.start_ns, launch.stream))
    return profile


def _add(line: bytes, profile: Profile) -> None:
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
        return _decode(line).events, ""
    except (msgspec.DecodeError, RecursionError) as error:
        whole = line[: max(line.rfind(_BETWEEN_EVENTS), 0)]
        try:
            return _decode(whole + b"}]}").events, "its JSON ends early"
        except (msgspec.DecodeError, RecursionError):
            return [], f"its JSON is damaged: {error}"
