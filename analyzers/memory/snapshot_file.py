"""Reads the segments and events of a snapshot, and checks them. Nothing that the pickle names is executed."""

import io
import pickle
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta, Struct, field

from tracekit.analyzers.core import OBJECTS, Int64, decoded

UNKNOWN = "(no stack was recorded)"
_HINT = "Name a file that torch.cuda.memory._dump_snapshot() wrote."
_ROUNDED_TO = 512
_TORCH = ("/torch/", "torch/")

Bytes = Annotated[int, Meta(ge=0, le=2**50)]
Device = Annotated[int, Meta(ge=0, lt=2**31)]
Microseconds = Annotated[int, Meta(ge=0, le=2**62 // 1000)]


class Place(str):
    """ "file:line (function)" of the innermost Python frame outside torch, else of the innermost frame."""


class Frame(Struct, frozen=True):
    """One level of a call stack."""

    filename: str = ""
    line: Int64 = 0
    name: str = ""


class Block(Struct, frozen=True):
    """A part of a segment."""

    size: Bytes
    state: str
    place: Place = field(default=Place(UNKNOWN), name="frames")


class Segment(Struct, frozen=True):
    """Memory that was reserved from the driver in one call."""

    total_size: Bytes
    blocks: list[Block]
    device: Device = 0


class Event(Struct, frozen=True):
    """An allocation, a release, or a failure."""

    action: str
    size: Bytes = 0
    addr: int = 0
    device_free: Bytes = 0
    place: Place = field(default=Place(UNKNOWN), name="frames")
    time_us: Microseconds = 0

    @property
    def block_bytes(self) -> int:
        """Size of the block: an event records the requested size, which the allocator rounds up."""
        return -(-self.size // _ROUNDED_TO) * _ROUNDED_TO


class Snapshot(Struct, frozen=True):
    """The file that torch.cuda.memory._dump_snapshot() writes."""

    segments: list[Segment]
    device_traces: list[list[Event]] = []


class _Blocks(Struct):
    blocks: Any


class _Lists(Struct):
    """The lists of a snapshot, whose content is not looked at."""

    segments: list[_Blocks]
    device_traces: list[Any] = []


class _Plain(pickle.Unpickler):
    """Builds numbers, texts, lists, tuples, dicts and sets. A pickle that names a class or a function is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}, and nothing in it may be executed")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to another file")


def read_snapshot(path: str | Path) -> Snapshot:
    """Read a snapshot. Raises InputError if the file is not a snapshot."""
    return decoded(Path(path), partial(_snapshot, path), _HINT)


def _snapshot(path: str | Path, data: bytes) -> Snapshot:
    held: Any = _Plain(io.BytesIO(data)).load()
    lists = msgspec.convert(held, _Lists)
    # A pickle of a few bytes may repeat one list without end, of which each repetition would become a copy.
    OBJECTS.check(sum(len(each.blocks) for each in lists.segments) + sum(map(len, lists.device_traces)), path)
    return msgspec.convert(held, Snapshot, dec_hook=_Places())


class _Places(dict[int, Place]):
    """Converts a call stack to its place. Most blocks and events share their stacks, each of which is read once."""

    def __call__(self, _: type, frames: Any) -> Place:
        known = self.get(id(frames))
        if known is None:
            known = self[id(frames)] = _place(msgspec.convert(frames, list[Frame]))
        return known


def _place(frames: list[Frame]) -> Place:
    python = [frame for frame in frames if frame.filename.endswith(".py")]
    own = [frame for frame in python if not any(part in frame.filename for part in _TORCH)]
    chosen = next(iter(own or python or frames), None)
    return Place(f"{chosen.filename}:{chosen.line} ({chosen.name})" if chosen else UNKNOWN)
