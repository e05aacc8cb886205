"""Collect the events of a trace from its packets, in order."""

import re
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from tracekit.analyzers.core import limits
from tracekit.analyzers.trace.kineto.events import Event
from tracekit.analyzers.trace.perfetto.packets import (
    Arguments,
    Framing,
    Interned,
    arguments,
    decode_error,
    each_packet,
    messages,
    text,
)
from tracekit.analyzers.trace.perfetto.slices import Mark, Slice, Tracks, encoded, event, slice_of

_OF_A_SEQUENCE = range(64, 128)
_BOOTTIME, _REALTIME = 6, 1


class Clocks:
    """The clocks of a trace, from its snapshots. `to_real_ns` is added to a time to get the time of day."""

    def __init__(self) -> None:
        self.to_real_ns = 0
        self._offset: dict[int, int] = {}
        self._last: dict[tuple[int, int], int] = {}
        self._unit: dict[tuple[int, int], tuple[int, bool]] = {}

    def snapshot(self, snapshot: Any, sequence: int) -> None:
        """Update the clocks from a snapshot, relative to the trace's clock."""
        at = {each.clock_id: each.timestamp * (each.unit_multiplier_ns or 1) for each in snapshot.clocks}
        primary = at.get(snapshot.primary_trace_clock or _BOOTTIME, at.get(_BOOTTIME))
        for each in snapshot.clocks:
            if each.clock_id in _OF_A_SEQUENCE:
                key = sequence, each.clock_id
                self._unit[key] = each.unit_multiplier_ns or 1, each.is_incremental
                self._last[key] = at[each.clock_id]
            if primary is not None:
                self._offset.setdefault(each.clock_id, primary - at[each.clock_id])
        if primary is not None and _REALTIME in at:
            self.to_real_ns = at[_REALTIME] - primary

    def time_ns(self, packet: Any, interned: Interned) -> int:
        """Return the time of a packet on the trace's clock."""
        clock = packet.timestamp_clock_id or interned.clock
        key = packet.trusted_packet_sequence_id, clock
        unit, incremental = self._unit.get(key, (1, False))
        time = packet.timestamp * unit
        if incremental:
            time = self._last[key] = self._last[key] + time
        return time + self._offset.get(clock, 0)


_BEGIN, _END, _INSTANT = 1, 2, 3
_CLEARED, _NEEDED = 1, 2
_MOST_UNPACKED = 64 << 20
_DEVICES = "device_properties"
_DESCRIBING = {
    *("track_descriptor", "process_descriptor", "thread_descriptor", "process_tree", "system_info"),
    *("trace_config", "trace_uuid", "trigger", "service_event", "synchronization_marker"),
}
"""Kinds of packets that describe tracks and the recording."""


@dataclass
class Collected:
    """The collected packets. `lost` counts packets that the recorder dropped, `undecoded` damaged ones."""

    tracks: Tracks = field(default_factory=Tracks)
    clocks: Clocks = field(default_factory=Clocks)
    slices: list[Slice] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    work: list[Event] = field(default_factory=list)
    devices: str = ""
    lost: int = 0
    undecoded: int = 0
    unused: Counter[str] = field(default_factory=Counter)
    """Packets of other kinds, such as counters of the GPU."""
    _sequences: dict[int, Interned] = field(default_factory=lambda: defaultdict(Interned))
    _messages: Any = field(default_factory=messages)
    _unpacked: int = 0
    _inside: bool = False
    _damage: type[Exception] = field(default_factory=decode_error)

    def add(self, packets: bytes) -> None:
        """Add whole packets. If one of them is damaged, they are added one by one."""
        try:
            trace = self._messages.Trace.FromString(packets)
        except self._damage:
            pieces = list(each_packet(packets))
            if len(pieces) < 2:
                self.undecoded += len(pieces)
                return
            for piece in pieces:
                self.add(piece)
            return
        for packet in trace.packet:
            self._add(packet)

    def _add(self, packet: Any) -> None:
        if packet.HasField("track_descriptor"):
            self.tracks.add(packet.track_descriptor)
        interned = self._sequence(packet)
        kind = packet.WhichOneof("data")
        if kind in ("track_event", "gpu_render_stage_event"):
            if packet.sequence_flags & _NEEDED and not interned.valid:
                self.lost += 1
            elif kind == "track_event":
                self._slice(packet, interned)
            else:
                self._stage(packet, interned)
        elif kind == "clock_snapshot":
            self.clocks.snapshot(packet.clock_snapshot, packet.trusted_packet_sequence_id)
        elif kind == "trace_stats":
            self.lost += _dropped(packet.trace_stats)
        elif kind == "compressed_packets":
            self._unpack(packet.compressed_packets)
        elif kind == "zstd_compressed_packets":
            self.undecoded += 1
        elif kind is not None and kind not in _DESCRIBING:
            self.unused[kind] += 1

    def _sequence(self, packet: Any) -> Interned:
        """Return the state of the packet's sequence, updated by the packet."""
        number = packet.trusted_packet_sequence_id
        if packet.previous_packet_dropped and not packet.first_packet_on_sequence:
            self.lost += 1
            self._sequences[number].valid = False
        if packet.sequence_flags & _CLEARED or packet.incremental_state_cleared:
            self._sequences[number] = Interned(valid=True)
        interned = self._sequences[number]
        if packet.HasField("interned_data"):
            interned.add(packet.interned_data, self._messages)
        if packet.HasField("trace_packet_defaults"):
            interned.clock = packet.trace_packet_defaults.timestamp_clock_id
            interned.default_track = packet.trace_packet_defaults.track_event_defaults.track_uuid
        return interned

    def _slice(self, packet: Any, interned: Interned) -> None:
        one = packet.track_event
        track = one.track_uuid or interned.default_track
        if one.type == _INSTANT:
            values = arguments(one.debug_annotations, interned) if one.name == _DEVICES else {}
            self.devices = str(values.get("properties", self.devices))
        if one.type not in (_BEGIN, _END):
            return
        time = self.clocks.time_ns(packet, interned)
        if one.type == _END:
            self.marks.append(Mark(track, time))
            return
        self.marks.append(Mark(track, time, len(self.slices)))
        self.slices.append(slice_of(one, track, time, interned))

    def _stage(self, packet: Any, interned: Interned) -> None:
        one = packet.gpu_render_stage_event
        time, values = self.clocks.time_ns(packet, interned), stage_arguments(one, interned)
        name, category = stage_name(one, interned), stage_category(one, interned)
        thread = one.gpu_id, values.get("stream", "")
        self.work.append(event(name, category, thread, time, one.duration, encoded(values)))

    def _unpack(self, packed: bytes) -> None:
        """Add compressed packets. The format has none inside others."""
        if self._inside:
            self.undecoded += 1
            return
        unpacker, framing = zlib.decompressobj(), Framing()
        try:
            packets = unpacker.decompress(packed, _MOST_UNPACKED)
        except zlib.error:
            self.undecoded += 1
            return
        self._unpacked += len(packets)
        limits.DOCUMENT.check(self._unpacked, "The trace")
        self._inside = True
        for run in framing.runs(iter([packets])):
            self.add(run)
        self._inside = False
        self.undecoded += bool(unpacker.unconsumed_tail or framing.rest)


def _dropped(stats: Any) -> int:
    """Return how many chunks and packets the recorder lost."""
    per_buffer = ("chunks_overwritten", "chunks_discarded", "trace_writer_packet_loss", "oversized_packets_dropped")
    of_buffers = sum(getattr(each, name) for each in stats.buffer_stats for name in per_buffer)
    return int(of_buffers + stats.chunks_discarded + stats.invalid_packets)


_CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation",
    "EventRecord": "cuda_event",
    "HostNode": "cuda_event",
}
_STREAM = re.compile(r"(?:\[\d+\] )?stream (-?\d+)\s*\Z")
_AS_IN_KINETO = {"stream id": "stream", "device id": "device", "context id": "context"}
_TAKEN = {"correlation", "graph id", "graph node id", "bytes", *_AS_IN_KINETO}
_LAUNCH = {"registers_per_thread": "registers per thread", "shared_mem_dynamic": "shared memory"}


def stage_category(event: Any, interned: Interned) -> str:
    """Return the Kineto category of a render stage, or the name of a stage that PyTorch does not define."""
    stage = interned.stages.get(event.stage_iid, "")
    return _CATEGORIES.get(stage, stage)


def stage_name(event: Any, interned: Interned) -> str:
    """Return the name of a kernel, or of its stage if it has none."""
    return text(event.name) or interned.names.get(event.name_iid, "") or interned.stages.get(event.stage_iid, "")


def stage_arguments(event: Any, interned: Interned) -> Arguments:
    """Return the arguments under Kineto's names. The queue is the stream if its name says so."""
    queue = _STREAM.match(interned.stages.get(event.hw_queue_iid, ""))
    values: Arguments = {"device": event.gpu_id, **({"stream": int(queue[1])} if queue else {})}
    for extra in event.extra_data:
        if text(extra.name) in _TAKEN and (number := _integer(text(extra.value))) is not None:
            values[_AS_IN_KINETO.get(text(extra.name), text(extra.name))] = number
    if event.HasField("launch"):
        values |= _launch(event.launch, interned)
    return values


def _launch(launch: Any, interned: Interned) -> Arguments:
    sizes = {"grid": launch.grid_size, "block": launch.workgroup_size}
    values: Arguments = {key: [size.x, size.y, size.z] for key, size in sizes.items()}
    for argument in launch.args:
        key = _LAUNCH.get(text(argument.name) or interned.launch_arguments.get(argument.name_iid, ""))
        kind = argument.WhichOneof("value")
        if key and kind in ("uint_value", "int_value"):
            values[key] = getattr(argument, kind)
    return values


def _integer(written: str) -> int | None:
    try:
        return int(written)
    except ValueError:
        return None
