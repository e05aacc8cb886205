"""Reads GPU work that PyTorch writes as render stages, with a stage and a queue for each kernel, copy and set."""

import re
from typing import Any

from tracekit.analyzers.trace.perfetto.messages import Arguments, Interned, text

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


def category(event: Any, interned: Interned) -> str:
    """Return the Kineto category of a render stage, or the name of a stage that PyTorch does not define."""
    stage = interned.stages.get(event.stage_iid, "")
    return _CATEGORIES.get(stage, stage)


def name(event: Any, interned: Interned) -> str:
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
