"""Reads the segments and events of a snapshot, and checks them."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.memory_snapshot.plain_pickle import read_plain

_ROUNDED_TO = 512


class Frame(Struct, frozen=True):
    """One level of a call stack."""

    filename: str = ""
    line: int = 0
    name: str = ""


class Block(Struct, frozen=True):
    """A part of a segment."""

    size: int
    state: str
    address: int = 0
    frames: list[Frame] = []


class Segment(Struct, frozen=True):
    """Memory that was reserved from the driver in one call."""

    total_size: int
    blocks: list[Block]
    address: int = 0
    device: int = 0
    allocated_size: int = 0
    active_size: int = 0


class Event(Struct, frozen=True):
    """An allocation, a release, or a failure."""

    action: str
    size: int = 0
    addr: int = 0
    device_free: int = 0
    frames: list[Frame] = []
    time_us: int = 0

    @property
    def block_bytes(self) -> int:
        """Size of the block: an event records the requested size, which the allocator rounds up."""
        return -(-self.size // _ROUNDED_TO) * _ROUNDED_TO


class Snapshot(Struct, frozen=True):
    """The file that torch.cuda.memory._dump_snapshot() writes."""

    segments: list[Segment]
    device_traces: list[list[Event]] = []


def read_snapshot(path: str | Path) -> Snapshot:
    """Read a snapshot. Raises InputError if the file is not a snapshot."""
    held: Any = read_plain(Path(path))
    try:
        return msgspec.convert(held, Snapshot)
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path} cannot be read.",
            f"It is not a memory snapshot: {error}.",
            "Name a file that torch.cuda.memory._dump_snapshot() wrote.",
        ) from error
