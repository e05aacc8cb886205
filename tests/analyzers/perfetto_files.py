"""Write Kineto's events as Perfetto traces, laid out as PyTorch 2.15 and as Kineto's own builder do."""

import json

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

WORK = {"kernel": (1, "Kernel"), "gpu_memcpy": (2, "Memcpy"), "gpu_memset": (3, "Memset")}
QUEUES = 100
CLEARED, NEEDED = 1, 2
BASE_NS = 1_790_000_000_000_000_000


def ns(us):
    whole = int(us)
    return BASE_NS + whole * 1000 + round((us - whole) * 1000)


def numbered(names):
    return {name: number for number, name in enumerate(dict.fromkeys(names), 1)}


class Writer(TraceProtoBuilder):
    def packet(self, time=None, flags=NEEDED, sequence=1):
        packet = self.add_packet()
        packet.trusted_packet_sequence_id = sequence
        packet.sequence_flags = flags
        if time is not None:
            packet.timestamp = time
        return packet

    def slice(self, kind, time, track):
        event = self.packet(time).track_event
        event.type, event.track_uuid = kind, track
        return event

    def threads(self, keys):
        tracks = {}
        for key in keys:
            track = self.add_packet().track_descriptor
            track.uuid = tracks[key] = len(tracks) + 1
            track.thread.pid, track.thread.tid = key
            track.thread.thread_name = f"thread {key[1]}"
        return tracks


def annotate(annotation, value):
    if isinstance(value, list):
        for each in value:
            annotate(annotation.array_values.add(), each)
    elif isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int):
        annotation.int_value = value
    elif isinstance(value, float):
        annotation.double_value = value
    else:
        annotation.string_value = str(value)


def as_pytorch(events):
    """Host slices with interned names and categories, all beginnings before all ends; work as render stages."""
    left_out = {*WORK, "gpu_user_annotation"}
    host = [e for e in events if e.get("ph") == "X" and e["cat"] not in left_out and isinstance(e["pid"], int)]
    work = [e for e in events if e.get("cat") in WORK]
    writer = Writer()
    clocks = writer.packet(BASE_NS).clock_snapshot
    for number in (messages.BUILTIN_CLOCK_BOOTTIME, messages.BUILTIN_CLOCK_REALTIME):
        clocks.clocks.add(clock_id=number, timestamp=BASE_NS)
    tracks = writer.threads(dict.fromkeys((e["pid"], e["tid"]) for e in host))
    names, categories = numbered(e["name"] for e in events if "name" in e), numbered(e["cat"] for e in host)
    queues = {s: QUEUES + n for n, s in enumerate(sorted({e["args"]["stream"] for e in work}))}
    interned = writer.packet(flags=CLEARED).interned_data
    for name, number in names.items():
        interned.event_names.add(iid=number, name=name)
    for name, number in categories.items():
        interned.event_categories.add(iid=number, name=name)
    for number, name in WORK.values():
        interned.gpu_specifications.add(iid=number, name=name)
    for stream, number in queues.items():
        interned.gpu_specifications.add(iid=number, name=f"[{stream:02d}] stream {stream}")
    for e in host:
        begin = writer.slice(1, ns(e["ts"]), tracks[e["pid"], e["tid"]])
        begin.name_iid = names[e["name"]]
        begin.category_iids.append(categories[e["cat"]])
        for key, value in e.get("args", {}).items():
            annotation = begin.debug_annotations.add(name=key)
            annotate(annotation, value)
    for e in host:
        writer.slice(2, ns(e["ts"]) + ns(e["dur"]) - BASE_NS, tracks[e["pid"], e["tid"]])
    for number, e in enumerate(work, 1):
        stage(writer, e, number, names, queues)
    return writer


def stage(writer, e, number, names, queues):
    one, args = writer.packet(ns(e["ts"])).gpu_render_stage_event, e["args"]
    one.event_id, one.duration, one.gpu_id = number, ns(e["dur"]) - BASE_NS, args["device"]
    one.stage_iid, one.hw_queue_iid = WORK[e["cat"]][0], queues[args["stream"]]
    if e["cat"] == "kernel":
        one.name_iid = names[e["name"]]
        for size, values in ((one.launch.grid_size, args["grid"]), (one.launch.workgroup_size, args["block"])):
            size.x, size.y, size.z = values
        one.launch.args.add(name="registers_per_thread", uint_value=args["registers per thread"])
    for key in ("device", "stream", "correlation", "bytes", "graph id", "graph node id"):
        if args.get(key):
            one.extra_data.add(name=f"{key} id" if key in ("device", "stream") else key, value=str(args[key]))


def as_kineto(events):
    """A track for each event below that of its thread, no categories, and the arguments as JSON text."""
    writer = Writer()
    events = [e for e in events if e.get("ph") == "X" and isinstance(e["pid"], int)]
    tracks = writer.threads(dict.fromkeys((e["pid"], e["tid"]) for e in events))
    for number, e in enumerate(events, 1 << 20):
        child = writer.add_packet().track_descriptor
        child.uuid, child.parent_uuid = number, tracks[e["pid"], e["tid"]]
        begin = writer.slice(1, ns(e["ts"]), number)
        begin.name = e["name"]
        begin.debug_annotations.add(name="metadata", string_value=json.dumps(e.get("args", {}))[1:-1])
        writer.slice(2, ns(e["ts"]) + ns(e["dur"]) - BASE_NS, number)
    for packet in writer.trace.packet:
        packet.sequence_flags = 0
    return writer
