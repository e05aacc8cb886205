"""Recorded traces to archives: only what is read of them, as many steps as fit, compressed by many processes."""

import json
import lzma
import multiprocessing
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MOST_BYTES = 15 * 2**20
"""Largest size of the traces of an archive together."""
_CATEGORIES = {
    *("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"),
    *("kernel", "gpu_memcpy", "gpu_memset", "overhead"),
}
_ARGS = {
    *(
        "External id",
        "Sequence number",
        "Fwd thread id",
        "Input Dims",
        "Input type",
        "Concrete Inputs",
        "Input Strides",
    ),
    *("correlation", "device", "stream", "bytes", "grid", "block", "registers per thread", "shared memory"),
    *("est. achieved occupancy %", "Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size"),
    *("Process Group Name", "Process Group Description", "Process Group Ranks", "Seq", "Src Rank", "Dst Rank"),
}
_HEAD = (
    *("schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit"),
    *("tracekit", "record_shapes", "cuda_runtime_version", "cuda_driver_version", "cupti_version"),
)


def pack(recorded: Path, names: Sequence[str], out: Path) -> None:
    """Write OUT/NAME.tar with JOB/rank-N.json.xz for each folder NAME/JOB of `recorded` that there is."""
    traces = [sorted((recorded / name).glob("*/rank-*.json")) for name in names]
    with multiprocessing.Pool() as pool:
        pool.starmap(compress, [(path, MOST_BYTES // len(all)) for all in traces for path in all], chunksize=1)
    for name in (each for each in names if (recorded / each).is_dir()):
        with tarfile.open(out / f"{name}.tar", "w") as archive:
            for path in sorted((recorded / name).rglob("*.xz")):
                archive.add(path, str(path.relative_to(recorded / name)), filter=_anonymous)
                path.unlink()
        print(f"{name}.tar: {(out / f'{name}.tar').stat().st_size / 2**20:.1f} MiB", flush=True)


def compress(path: Path, most: int) -> None:
    """Compress a trace to at most so many bytes: only its first steps, if it has more.

    A trace that is cut off, since its rank was killed, is left out.
    """
    try:
        trace = json.loads(path.read_bytes())
    except ValueError:
        return
    finally:
        path.unlink()
    head = {name: trace[name] for name in _HEAD if name in trace}
    events = [_slim(event) for event in trace["traceEvents"] if event.get("cat") in _CATEGORIES]
    ends = _ends_of_steps(events)
    packed = _packed(head, events)
    while len(packed) > most and len(ends) > 1:
        ends = ends[: min(len(ends) - 1, max(1, len(ends) * most // len(packed)))]
        packed = _packed(head, [event for event in events if event["ts"] < ends[-1]])
    path.with_suffix(".json.xz").write_bytes(packed)


def _slim(event: dict[str, Any]) -> dict[str, Any]:
    kept = {name: event[name] for name in ("ph", "cat", "name", "pid", "tid", "ts", "dur") if name in event}
    return kept | {"args": {name: value for name, value in event.get("args", {}).items() if name in _ARGS}}


def _ends_of_steps(events: list[dict[str, Any]]) -> list[float]:
    """A step ends with a wait for the device, so its work ends before it does."""
    return sorted(
        event["ts"] + event["dur"]
        for event in events
        if event["cat"] == "user_annotation" and event["name"].startswith("ProfilerStep#")
    )


def _packed(head: dict[str, Any], events: list[dict[str, Any]]) -> bytes:
    return lzma.compress(json.dumps({**head, "traceEvents": events}, separators=(",", ":")).encode(), preset=4)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
