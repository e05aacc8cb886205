"""Read kernels, copies, memory sets, and CUDA graphs that were traced as a whole, as device rows."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Ints
from tracekit.analyzers.trace.kineto.assembly import DAY_NS, cap_days, horizon
from tracekit.analyzers.trace.kineto.event_columns import LARGEST_GRAPH_ID
from tracekit.analyzers.trace.nsys.database import MISSING, Columns, Database, Rows, Strings, categories, constant
from tracekit.analyzers.trace.nsys.host_rows import pid_of
from tracekit.analyzers.trace.problems import Problem, problem
from tracekit.analyzers.trace.trace import DeviceProperties

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
SETS = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NO_NAME = "kernel without a name"

_TIMES = {"start": MISSING, "end": MISSING}
_WHERE = {"deviceId": -1, "streamId": -1, "correlationId": -1, "globalPid": -1}
_IN_GRAPH = {"graphId": -1, "graphNodeId": -1}
_GRAPH_ID_SHIFT = 32
_INT32_MAX = 2**31 - 1

_COPY_KINDS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
    11: "Unified HtoD", 12: "Unified DtoH", 13: "Unified DtoD",
}  # fmt: skip
_MEMORY_KINDS = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static",
}  # fmt: skip


def kernels(database: Database, strings: Strings) -> Rows:
    """Return DEVICE's columns with `start`, `end`, `globalPid` and the process's correlation id, without times."""
    rows = database.read(
        KERNELS,
        _TIMES,
        {
            **_WHERE,
            **dict.fromkeys(("demangledName", "shortName", "mangledName", "registersPerThread"), -1),
            **dict.fromkeys(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), -1),
            **dict.fromkeys(("staticSharedMemory", "dynamicSharedMemory"), -1),
        },
        varying=_IN_GRAPH,
    )
    shared = (rows["staticSharedMemory"], rows["dynamicSharedMemory"])
    return {
        **_common(rows, "kernel"),
        "name": _kernel_names(rows, strings),
        "blocks": _product([rows[f"grid{axis}"] for axis in "XYZ"]),
        "threads_per_block": np.minimum(_product([rows[f"block{axis}"] for axis in "XYZ"]), _INT32_MAX),
        "registers": np.clip(rows["registersPerThread"], -1, _INT32_MAX),
        "shared_memory_bytes": np.where(
            (shared[0] < 0) & (shared[1] < 0), -1, sum(np.clip(s, 0, 1 << 40) for s in shared)
        ),
        **_graph(rows),
    }


def copies(database: Database) -> Rows:
    """Return copies with the names that Kineto gives them: Memcpy HtoD (Pinned -> Device)."""
    kinds = dict.fromkeys(("copyKind", "srcKind", "dstKind"), -1)
    rows = database.read(COPIES, _TIMES, {**_WHERE, **kinds, "bytes": -1}, varying=_IN_GRAPH)
    names = _distinct_names([rows[kind] for kind in kinds], _copy_name)
    return {**_common(rows, "memcpy"), "name": names, "bytes": rows["bytes"], **_graph(rows)}


def sets(database: Database) -> Rows:
    rows = database.read(SETS, _TIMES, {**_WHERE, "memKind": -1, "bytes": -1}, varying=_IN_GRAPH)
    names = _distinct_names([rows["memKind"]], lambda kind: f"Memset ({_MEMORY_KINDS.get(kind, 'Unknown')})")
    return {**_common(rows, "memset"), "name": names, "bytes": rows["bytes"], **_graph(rows)}


def graphs(database: Database) -> Rows:
    """Return launches of CUDA graphs whose kernels were not traced individually; each counts as one kernel."""
    rows = database.read(GRAPHS, _TIMES, {**_WHERE, "graphId": -1})
    names = _distinct_names([rows["graphId"]], lambda graph: f"CUDA graph {graph}" if graph >= 0 else "CUDA graph")
    return {**_common(rows, "kernel"), "name": names, "graph": np.clip(rows["graphId"], 0, LARGEST_GRAPH_ID)}


def _common(rows: Columns, category: str) -> Rows:
    size = len(rows["start"])
    none = np.full(size, -1, dtype=np.int64)
    return {
        **{name: rows[name] for name in ("start", "end", "globalPid", "correlationId")},
        "device": np.clip(rows["deviceId"], -1, _INT32_MAX),
        "stream": rows["streamId"],
        "category": constant(category, size),
        "external_id": none,
        **dict.fromkeys(
            ("bytes", "blocks", "threads_per_block", "registers", "shared_memory_bytes", "graph_node"), none
        ),
        "occupancy": np.full(size, np.nan),
    }


def _kernel_names(rows: Columns, strings: Strings) -> pd.Categorical:
    best = rows["demangledName"]
    for other in ("shortName", "mangledName"):
        best = np.where(best >= 0, best, rows[other])
    code, ids = pd.factorize(best)
    names = strings.of(np.asarray(ids, dtype=np.int64))
    return categories(code, np.where(names == "", NO_NAME, names).tolist())


def _distinct_names(keys: list[Ints], name) -> pd.Categorical:  # type: ignore[no-untyped-def]
    """Call name(*keys) once for each distinct combination of keys."""
    code, distinct = pd.factorize(pd.MultiIndex.from_arrays(keys))
    return categories(code, [name(*key) for key in distinct])


def _copy_name(kind: int, source: int, target: int) -> str:
    name = f"Memcpy {_COPY_KINDS.get(kind, 'of an unknown kind')}"
    if source not in _MEMORY_KINDS or target not in _MEMORY_KINDS:
        return name
    return f"{name} ({_MEMORY_KINDS[source]} -> {_MEMORY_KINDS[target]})"


def _graph(rows: Columns) -> Columns:
    """Return ids of graphs and nodes. A graph's id is also the upper half of its nodes' ids; 0 means no graph."""
    node = np.where(rows["graphNodeId"] > 0, rows["graphNodeId"], -1)
    graph = np.where(rows["graphId"] > 0, rows["graphId"], node >> _GRAPH_ID_SHIFT)
    return {"graph": np.where((graph > 0) & (graph <= LARGEST_GRAPH_ID), graph, -1), "graph_node": node}


def _product(sizes: list[Ints]) -> Ints:
    """Return the product of the sizes; -1 if one is not positive or the product overflows."""
    valid = np.all([(size > 0) & (size <= _INT32_MAX) for size in sizes], axis=0)
    exact = np.prod([np.where(valid, size, 1).astype(np.float64) for size in sizes], axis=0) < 2.0**62
    return np.where(valid & exact, np.prod([np.where(valid & exact, size, 1) for size in sizes], axis=0), -1)


_MONTH_NS = 30 * DAY_NS


@dataclass(frozen=True)
class Timed:
    """Tables with `start_ns` after `base_ns` and `duration_ns` instead of `start` and `end`."""

    tables: list[Rows]
    base_ns: int = 0
    problems: list[Problem] = field(default_factory=list)


def timed(tables: list[Rows]) -> Timed:
    """Keep rows that start within a month of the median. Rows without an end last until the recording ends."""
    starts = np.concatenate([t["start"] for t in tables])
    starts = starts[_are_times(starts)]
    if not len(starts):
        return Timed([])
    middle = int(np.partition(starts, len(starts) // 2)[len(starts) // 2])
    kept = [_take(t, _rows_near(t["start"], middle)) for t in tables]
    if not sum(len(t["start"]) for t in kept):
        return Timed([])
    base = min(int(t["start"].min()) for t in kept if len(t["start"]))
    ends = [np.where(_rows_near(t["end"], middle), t["end"], t["start"]) for t in kept]
    last = max(horizon(t["start"], e - t["start"]) for t, e in zip(kept, ends, strict=True) if len(e))
    negative = sum(int((_ended(t) & (t["end"] < t["start"])).sum()) for t in kept)
    long = sum(int((_ended(t) & (_duration(t) > DAY_NS)).sum()) for t in kept)
    return Timed(
        tables=[_settled(t, base, last) for t in kept],
        base_ns=base,
        problems=[
            problem("implausible-time", sum(len(t["start"]) for t in tables) - sum(len(t["start"]) for t in kept)),
            problem("negative-duration", negative),
            problem("capped-duration", long),
            problem("unended-ranges", sum(int((~_ended(t)).sum()) for t in kept)),
        ],
    )


def _settled(table: Rows, base: int, last: int) -> Rows:
    columns = dict(table)
    start = columns.pop("start")
    end = np.where(_ended(table), columns.pop("end"), last)
    duration = cap_days(start, np.maximum(_span(start, end), 0), last)
    return {"start_ns": start - base, "duration_ns": duration, **columns}


def _ended(table: Rows) -> npt.NDArray[np.bool_]:
    return table["end"] != MISSING


def _duration(table: Rows) -> Ints:
    return _span(table["start"], table["end"])


def _span(start: Ints, end: Ints) -> Ints:
    """Return end minus start, without the overflow that an invalid end could cause."""
    return np.clip(end, -(1 << 62), 1 << 62) - start


def _rows_near(times: Ints, middle: int) -> npt.NDArray[np.bool_]:
    """Return whether times are within a month of the middle. Floats do not overflow."""
    return _are_times(times) & (np.abs(times.astype(np.float64) - middle) < _MONTH_NS)


def _are_times(times: Ints) -> npt.NDArray[np.bool_]:
    """Return which numbers are there, and far from the ends of int64."""
    return (times > MISSING) & (times < -MISSING)


def _take(table: Rows, rows: npt.NDArray[np.bool_]) -> Rows:
    return {name: values[rows] for name, values in table.items()}


_GPUS = "TARGET_INFO_GPU"
_CUDA_DEVICES = "TARGET_INFO_CUDA_DEVICE"
_SESSION = "TARGET_INFO_SESSION_START_TIME"


def devices(database: Database) -> tuple[DeviceProperties, ...]:
    sizes = dict.fromkeys(("smCount", "totalMemory", "computeMajor", "computeMinor"), 0)
    rows = database.read(_GPUS, {"id": -1}, sizes, texts=("name",))
    columns = (rows[name].tolist() for name in ("id", "name", *sizes))
    return tuple(
        DeviceProperties(id, name, sms, (major, minor), memory)
        for id, name, sms, memory, major, minor in zip(*columns, strict=True)
    )


def gpu_of(database: Database, device: Ints, global_pid: Ints) -> Ints:
    """Map each process's device number to a GPU; a number that the report does not map stays."""
    rows = database.read(_CUDA_DEVICES, {"gpuId": -1, "cudaId": -1, "pid": -1})
    known = pd.MultiIndex.from_arrays([rows["pid"], rows["cudaId"]])
    gpus = pd.Series(rows["gpuId"], index=known)[~known.duplicated()]
    mapped = gpus.reindex(pd.MultiIndex.from_arrays([pid_of(global_pid), device]), fill_value=-1).to_numpy()
    return np.where(mapped >= 0, mapped, device)


def epoch_ns(database: Database) -> int:
    """Return the time at which the report's clock was 0, in ns since 1970; 0 if unknown."""
    rows = database.read(_SESSION, {"utcEpochNs": 0}, varying={"systemClockNs": 0})
    if not len(rows["utcEpochNs"]):
        return 0
    epoch = int(rows["utcEpochNs"][0]) - int(rows["systemClockNs"][0])
    return epoch if abs(epoch) < -MISSING else 0
