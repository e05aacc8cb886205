"""Convert the events of one chunk to columns."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod

import msgspec
import numpy as np

from tracekit.analyzers.trace import ranges
from tracekit.analyzers.trace.kineto.columns import (
    LAST_US,
    Coded,
    Columns,
    coded,
    coded_json,
    coded_together,
    durations_ns,
    join,
    modules_and_frames,
    narrowed,
    peak_memory,
    sort,
    starts_ns,
    starts_us,
)
from tracekit.analyzers.trace.kineto.events import (
    BROKEN,
    DEVICE_KINDS,
    HOST_KINDS,
    CollectiveArgs,
    DeviceArgs,
    Event,
    HostArgs,
    ThreadArgs,
    decode_args,
    kind_of,
)

LARGEST_GRAPH_ID = 2**62
"""CUPTI counts graphs from 1; larger ids are damage."""

LARGEST_SHARE = 1.01
"""Largest credible share. Values slightly above 1 come from the profiler's rounding."""

Thread = tuple[int | str, int | str]
"""pid and tid, as written: thread "1" is not thread 1."""

_METRICS, _METRICS_KEYS, _KERNEL_KEYS = "metrics: ", (b'"kernel_id"', b'"queue"'), (b'"device"', b'"correlation"')
"""Prefix of the names of events that an XPU's profiler records around kernels with their counters, and the arguments
that they have and lack (pytorch/kineto, XpuptiScopeProfilerHandlers). A kernel may have any name."""
_NOT_ON_HOST = {*DEVICE_KINDS, "unknown"}
_OP, _RANGE, _PYTHON = map(HOST_KINDS.index, ("op", "range", "python"))
_MARK = re.compile(r"ProfilerStep#\d+$|enumerate\(DataLoader\)#|Optimizer\.\w+#")
_LAST_INTEGER = re.compile(r"(?<![\d-])-?\d{1,9}\Z")
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


class EventColumns(msgspec.Struct):
    """Columns as in HOST and DEVICE, but start_ns is absolute, and a duration_ns may be MISSING or NEGATIVE.

    `marks` are begin and end events in order, with the columns of `host` and `begins`; their category code may be -1
    (no host work). `dropped` counts events with an impossible start, `phaseless` events without a known phase, and
    `impossible` values that cannot occur.
    """

    host: Columns
    device: Columns
    marks: Columns
    thread_names: dict[Thread, str]
    unknown: Counter[str]
    dropped: int
    phaseless: int
    impossible: int
    peak_memory: int = 0
    """Largest number of bytes that were allocated on one device; 0: not recorded."""
    python_calls: int = 0
    """Calls of Python functions, of which `host` holds the long ones."""


def event_columns(events: Sequence[Event]) -> EventColumns:
    """Return the columns of the events of one chunk."""
    groups = sort(events)
    host, host_dropped = _timed(modules_and_frames(groups.modules) + groups.host, _host_columns)
    work = [e for e in groups.device if not (e.name.startswith(_METRICS) and _is_metrics(e))]
    device, device_dropped = _timed(work, _device_columns)
    _lines_as_frames(host)
    _marks_as_ranges(host)
    marks, marks_dropped = _timed(groups.marks, _host_columns)
    lost_marks = [e for e in groups.marks if e.ph == "B" and kind_of(e.cat) in _NOT_ON_HOST]
    impossible = _leave_out_impossible(device)
    return EventColumns(
        host=host,
        device=device,
        marks=marks,
        thread_names=_thread_names(groups.metadata),
        unknown=Counter(e.cat for e in groups.unknown + lost_marks),
        dropped=host_dropped + device_dropped + marks_dropped,
        phaseless=groups.phaseless,
        impossible=impossible,
        peak_memory=peak_memory(groups.memory),
        python_calls=len(groups.modules),
    )


def _lines_as_frames(host: Columns) -> None:
    """Make Python frames of the ranges in which a capture names the line that waits."""
    names, is_range = host["name"], host["category"] == _RANGE
    frames = [ranges.python_frame(name) for name in names.values]
    is_frame = is_range & names.map_codes([bool(frame) for frame in frames], "bool")
    if is_frame.any():
        host["category"] = np.where(is_frame, np.int8(_PYTHON), host["category"])
        host["name"] = names.replaced(is_frame, frames)


def _marks_as_ranges(host: Columns) -> None:
    """Make ranges of the marks that torch recorded as ops until 1.10: of steps, loaders, and optimizers."""
    names, is_op = host["name"], host["category"] == _OP
    marks = is_op & names.map_codes([bool(_MARK.match(name)) for name in names.values], "bool")
    host["category"] = np.where(marks, np.int8(_RANGE), host["category"])


def _is_metrics(event: Event) -> bool:
    args = bytes(event.args)
    return all(key in args for key in _METRICS_KEYS) and not any(key in args for key in _KERNEL_KEYS)


def _leave_out_impossible(device: Columns) -> int:
    """Replace occupancies above 100 % and absurd graph ids by the absent value, and return how many there were."""
    occupancy, graph = device["occupancy"] > LARGEST_SHARE, device["graph"] > LARGEST_GRAPH_ID
    device["occupancy"] = np.where(occupancy, np.nan, device["occupancy"])
    device["graph"] = narrowed(np.where(graph, -1, device["graph"]))
    return int(occupancy.sum() + graph.sum())


def joined(parts: Sequence[EventColumns]) -> EventColumns:
    """Join the events of all parts in order, and empty the parts."""
    return EventColumns(
        host=join([p.host for p in parts]),
        device=join([p.device for p in parts]),
        marks=join([p.marks for p in parts]),
        thread_names={thread: name for p in parts for thread, name in p.thread_names.items()},
        unknown=sum((p.unknown for p in parts), Counter()),
        dropped=sum(p.dropped for p in parts),
        phaseless=sum(p.phaseless for p in parts),
        impossible=sum(p.impossible for p in parts),
        peak_memory=max((p.peak_memory for p in parts), default=0),
        python_calls=sum(p.python_calls for p in parts),
    )


def _timed(events: list[Event], build: Callable[[list[Event]], Columns]) -> tuple[Columns, int]:
    """Return the columns of the events that have a possible start, and how many events have none."""
    us = starts_us([e.ts for e in events])
    possible = np.abs(us) < LAST_US  # NaN is not
    dropped = len(events) - int(possible.sum())
    if dropped:
        events, us = [e for e, keep in zip(events, possible, strict=True) if keep], us[possible]
    columns = build(events)
    columns["start_ns"] = starts_ns([e.ts for e in events], us)
    columns["duration_ns"] = narrowed(durations_ns(np.array([e.dur for e in events], dtype=np.float64)))
    return columns, dropped


def _host_columns(events: list[Event]) -> Columns:
    args = with_messages(decode_args(HostArgs, [e.args for e in events]), events)
    thread, phase, category, name = coded_together([((e.pid, e.tid), e.ph, e.cat, e.name) for e in events], 4)
    shapes, dtypes, values, strides = coded_json([(a.shapes, a.dtypes, a.values, a.strides) for a in args], 4)
    return {
        "begins": phase.map_codes([value == "B" for value in phase.values], "bool"),
        "name": name,
        "thread": thread,
        "category": _category_codes(category, HOST_KINDS),
        "correlation": _ids([a.correlation for a in args]),
        "external_id": _ids([a.external_id for a in args]),
        "sequence": _ids([a.sequence for a in args]),
        "forward_thread": narrowed(_int64([a.forward_thread for a in args]), "int16", "int32"),
        "shapes": shapes,
        "dtypes": dtypes,
        "values": values,
        "strides": strides,
    }


def _device_columns(events: list[Event]) -> Columns:
    args = decode_args(DeviceArgs, [e.args for e in events])
    occupancy = np.array([a.occupancy for a in args], dtype=np.float64)
    category, name = coded_together([(e.cat, e.name) for e in events], 2)
    grid, block = coded_json([(a.grid, a.block) for a in args], 2)
    return {
        "name": name,
        "device": narrowed(_recorded_or_id(_int64([a.device for a in args]), [e.pid for e in events])),
        "stream": narrowed(_recorded_or_id(_int64([a.stream for a in args]), [e.tid for e in events])),
        "category": _category_codes(category, DEVICE_KINDS),
        "correlation": _ids([a.correlation for a in args]),
        "external_id": _ids([a.external_id for a in args]),
        "bytes": _ids([a.bytes for a in args]),
        "blocks": narrowed(_products(grid, _INT64_MAX)),
        "threads_per_block": narrowed(_products(block, _INT32_MAX)),
        "registers": _ids([a.registers for a in args]),
        "shared_memory_bytes": _ids([a.shared_memory for a in args]),
        "occupancy": np.where(occupancy == 0, np.nan, occupancy) / 100,  # Kineto writes 0 if it knows none.
        "graph": _graph_ids([a.graph for a in args]),
        "graph_node": _graph_ids([a.graph_node for a in args]),
    }


def _int64(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def _ids(numbers: list[int]) -> np.ndarray:
    """Return ids in the narrowest type: a row has many of them, and most are small or absent."""
    return narrowed(_int64(numbers))


def _category_codes(names: Coded[str], kinds: tuple[str, ...]) -> np.ndarray:
    codes = {kind: code for code, kind in enumerate(kinds)}
    return names.map_codes([codes.get(kind_of(name), -1) for name in names.values], "int8")


def _recorded_or_id(recorded: np.ndarray, ids: list[int | str]) -> np.ndarray:
    """Replace a missing argument by the number that ends the pid or tid ("stream 7")."""
    if (recorded >= 0).all():
        return recorded
    written = coded(ids)
    return np.where(recorded >= 0, recorded, written.map_codes([_last_integer(v) for v in written.values], "int64"))


def _last_integer(text: int | str) -> int:
    number = _LAST_INTEGER.search(str(text))
    return int(number[0]) if number else -1


def _products(texts: Coded[str], largest: int) -> np.ndarray:
    return texts.map_codes([_product(text, largest) for text in texts.values], "int64")


def _product(text: str, largest: int) -> int:
    try:
        size = prod(msgspec.json.decode(text, type=list[int])) if text else -1
    except BROKEN:
        return -1
    return size if 0 < size <= largest else -1


def _graph_ids(recorded: list[int]) -> np.ndarray:
    """Return ids of graphs or of their nodes. CUPTI's id 0 means none."""
    ids = _int64(recorded)
    return narrowed(np.where(ids > 0, ids, -1))


def _thread_names(events: list[Event]) -> dict[Thread, str]:
    named = [e for e in events if e.name == "thread_name"]
    args = decode_args(ThreadArgs, [e.args for e in named])
    return {(e.pid, e.tid): a.name for e, a in zip(named, args, strict=True) if a.name}


RECORDED_AS = "record_param_comms"


def with_messages(of: list[HostArgs], events: Sequence[Event]) -> list[HostArgs]:
    """Replace the values of collectives with name, elements sent and received, their dtype, the number of ranks, the
    group's name, the sequence number in it, and the source and target of a send (-1: not recorded).

    Values of other host events, and of collectives without these arguments, are unchanged.
    """
    rows = [row for row, event in enumerate(events) if event.name == RECORDED_AS]
    for row, args in zip(rows, decode_args(CollectiveArgs, [events[row].args for row in rows]), strict=True):
        if args.name:
            numbers = (args.sequence, args.source, args.target)
            message = (args.name, str(args.sent), str(args.received), args.dtype, str(args.ranks), args.group)
            of[row].values = msgspec.Raw(msgspec.json.encode((*message, *map(str, numbers))))
    return of
