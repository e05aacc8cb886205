"""Device memory of a run, and the optimizations that lower its peak.

Allocations are paired with their frees, and assigned to the work that follows.
"""

import re
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Ints, tables
from tracekit.analyzers.results import Analysis, Memory, Remedy
from tracekit.analyzers.trace import CaptureInfo, Trace


@dataclass(frozen=True)
class Allocations:
    """Blocks that were allocated or freed while the trace was recorded."""

    begin_ns: Ints
    end_ns: Ints
    """Time of the free; the end of the trace if there is none."""
    bytes: Ints
    freed: npt.NDArray[np.bool_]
    before: npt.NDArray[np.bool_]
    """Whether the block was allocated before the first event and freed later."""
    held_before: int
    """Bytes that were allocated before the first event and never freed."""


def allocations(moves: pd.DataFrame) -> Allocations:
    """Return the blocks of a MOVES table."""
    times, sizes = moves["time_ns"].to_numpy(), moves["bytes"].to_numpy()
    allocated, end = sizes > 0, int(times.max()) + 1
    freed_by = _freed_by(moves["address"].to_numpy(), allocated)
    rows = np.flatnonzero(allocated)
    freed = freed_by[rows] >= 0
    unmatched = np.setdiff1d(np.flatnonzero(~allocated), freed_by[rows][freed])
    first = int(moves["allocated_bytes"].iloc[0] - sizes[0])
    return Allocations(
        begin_ns=np.append(times[rows], np.full(len(unmatched), times[0])),
        end_ns=np.append(np.where(freed, times[freed_by[rows]], end), times[unmatched]),
        bytes=np.append(sizes[rows], -sizes[unmatched]),
        freed=np.append(freed, np.ones(len(unmatched), dtype=bool)),
        before=np.arange(len(rows) + len(unmatched)) >= len(rows),
        held_before=max(0, first + int(sizes[unmatched].sum())),
    )


def _freed_by(addresses: Ints, allocated: npt.NDArray[np.bool_]) -> Ints:
    """Return, for each allocation, the row of the next event at its address if that is a free; else -1."""
    order = np.lexsort((np.arange(len(addresses)), addresses))
    following = np.append(order[1:], -1)
    same = np.append(addresses[order[1:]] == addresses[order[:-1]], False) & ~allocated[following]
    result = np.full(len(addresses), -1, dtype=np.int64)
    result[order] = np.where(same & allocated[order], following, -1)
    return result


def launched_ns(analysis: Analysis, host: pd.DataFrame) -> pd.DataFrame:
    """Return the work in launch order: `time_ns` of the launch on the host, layer, phase and op."""
    work = analysis.work
    launch = np.where(work["launch"] >= 0, work["launch"], work["op"]).astype(np.int64)
    started = host["start_ns"].to_numpy()
    times = np.where(launch >= 0, started[np.maximum(launch, 0)], work["start_ns"].to_numpy())
    paths = analysis.layers["path"].to_numpy(dtype=object)
    layer = work["layer"].to_numpy().astype(np.int64)
    table = pd.DataFrame(
        {
            "time_ns": times,
            "layer": np.where(layer >= 0, paths[np.maximum(layer, 0)], ""),
            "phase": work["phase"].astype(str).to_numpy(),
            "op": work["op_name"].astype(str).to_numpy(),
        }
    )
    return table.sort_values("time_ns", kind="stable", ignore_index=True)


_TABLES = tables(__file__)
OVER_TIME = _TABLES["memory_over_time"]
AT_PEAK = _TABLES["memory_at_peak"]
KINDS = tuple(column.name for column in OVER_TIME.columns[1:])
_MOMENTS = 2
_FORWARD, _BACKWARD, _OPTIMIZER = "forward", "backward", "optimizer"


def kinds_of(blocks: Allocations, work: pd.DataFrame, weight_bytes: int = 0) -> npt.NDArray[np.object_]:
    """Return the kind of each block. `work` is in launch order; `weight_bytes` of the blocks are weights."""
    kinds = _kinds_by_life(blocks, work)
    kinds[_weights(blocks, work, weight_bytes)] = "weights"
    return kinds


def _weights(blocks: Allocations, work: pd.DataFrame, size: int) -> npt.NDArray[np.bool_]:
    """Return the blocks of a model that was built while the trace was recorded: of the blocks that stay, the first
    `size` bytes that were allocated before the first forward pass."""
    forward = (work["phase"] == _FORWARD).to_numpy()
    if not size or not forward.any():
        return np.zeros(len(blocks.bytes), dtype=bool)
    began = work["time_ns"].to_numpy()[forward.argmax()]
    stays = ~blocks.freed & ~blocks.before & (blocks.begin_ns <= began)
    order = np.argsort(blocks.begin_ns, kind="stable")
    total = np.empty(len(order), dtype=np.int64)
    total[order] = np.where(stays, blocks.bytes, 0)[order].cumsum()
    held: npt.NDArray[np.bool_] = stays & (total <= size)
    return held


def _kinds_by_life(blocks: Allocations, work: pd.DataFrame) -> npt.NDArray[np.object_]:
    times, phases = work["time_ns"].to_numpy(), np.append(work["phase"].to_numpy(dtype=object), "")
    first, last = np.searchsorted(times, blocks.begin_ns), np.searchsorted(times, blocks.end_ns)
    made, ended = phases[first], np.where(blocks.freed, phases[np.maximum(last - 1, 0)], "")
    brief = last - first <= 1
    if not {_BACKWARD, _OPTIMIZER} & set(phases):
        kept = ~blocks.freed | blocks.before
        return _select([(kept, "inputs and caches"), (brief, "workspaces")], "activations")
    chosen = [
        (blocks.before & (ended == _BACKWARD), "activations"),
        (blocks.before & (ended == _OPTIMIZER), "gradients"),
        (blocks.before, "inputs and caches"),
        ((made == _BACKWARD) & (ended != _BACKWARD), "gradients"),
        ((made == _OPTIMIZER) & ~blocks.freed, "optimizer state"),
        ((made == _FORWARD) & (ended != _FORWARD), "activations"),
        (brief, "workspaces"),
    ]
    return _select(chosen, "temporaries")


def _select(chosen: list[tuple[npt.NDArray[np.bool_], str]], other: str) -> npt.NDArray[np.object_]:
    masks, names = zip(*chosen, strict=True)
    return np.select(masks, names, other).astype(object)


def held_before(size: int, capture: CaptureInfo | None, *, trains: bool) -> dict[str, int]:
    """Split the earlier allocations into weights, buffers and two moments of an optimizer."""
    parts: dict[str, int] = {}
    wanted = {"weights": capture.weight_bytes, "buffers": capture.buffer_bytes} if capture else {}
    if trains and capture:
        wanted["optimizer state"] = _MOMENTS * capture.weight_bytes
    for kind, most in wanted.items():
        parts[kind] = min(most, size)
        size -= parts[kind]
    return parts | {"inputs and caches": size}


_INDEX = re.compile(r"(?<![^./])\d+(?![^./])")
_INSTANCE = re.compile(r"(?<=\w)_\d+(?![^./])")
"""Number of an instance, which torch.profiler appends to the class of a module."""
_POINTS = 600
"""Maximum number of times that are kept. Of the times in between, the one with the most memory is kept."""


@dataclass(frozen=True)
class MemoryTimeline:
    """Device memory over time."""

    over_time: pd.DataFrame = field(repr=False)
    at_peak: pd.DataFrame = field(repr=False)
    peak_bytes: int
    peak_ns: int
    """Time of the peak after the first event."""
    phase: str
    """Phase at the peak; "": none."""


def memory_timeline(trace: Trace, analysis: Analysis, moves: pd.DataFrame) -> MemoryTimeline:
    """Return the memory of a trace with non-empty MOVES."""
    blocks, work = allocations(moves), launched_ns(analysis, trace.host)
    trains = bool((work["phase"] == "backward").any())
    capture, base = trace.metadata.capture, int(moves["time_ns"].iloc[0])
    before = held_before(blocks.held_before, capture, trains=trains)
    built = capture.weight_bytes - before.get("weights", 0) if capture else 0
    kinds = kinds_of(blocks, work, built)
    times, levels = _levels(blocks, kinds, before)
    libraries = _library_workspaces(capture, int(levels.sum(axis=1).max()))
    if libraries:
        before["workspaces"] = libraries
        levels[:, KINDS.index("workspaces")] += libraries
    total = levels.sum(axis=1)
    peak = int(total.argmax())
    kept = _kept(total)
    over_time = {"time_ns": times[kept] - base} | {kind: levels[kept, code] for code, kind in enumerate(KINDS)}
    index = min(int(np.searchsorted(work["time_ns"], times[peak])), len(work) - 1)
    return MemoryTimeline(
        over_time=OVER_TIME.frame(over_time),
        at_peak=_peak_rows(blocks, kinds, before, _with_like_layers(work, analysis), int(times[peak])),
        peak_bytes=int(total[peak]),
        peak_ns=int(times[peak]) - base,
        phase=str(work["phase"].iloc[index]),
    )


def _with_like_layers(work: pd.DataFrame, analysis: Analysis) -> pd.DataFrame:
    """Return the work with * for the index of each layer."""
    classes = analysis.source.layers_from == "nn.Module events"
    pattern, mark = (_INSTANCE, "_*") if classes else (_INDEX, "*")
    return work.assign(layer=work["layer"].str.replace(pattern, mark, regex=True))


def _library_workspaces(capture: CaptureInfo | None, seen: int) -> int:
    """Return the library workspaces of a modelled run, whose events only cover tensors."""
    return max(0, capture.peak_memory_bytes - seen) if capture and capture.source == "modelled" else 0


def _levels(
    blocks: Allocations, kinds: npt.NDArray[np.object_], before: dict[str, int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the times of all allocations and frees, and the bytes of each kind from each time on."""
    code = np.array([KINDS.index(kind) for kind in kinds], dtype=np.int64)
    times = np.concatenate([blocks.begin_ns, blocks.end_ns[blocks.freed]])
    changes = np.zeros((len(times), len(KINDS)), dtype=np.int64)
    changes[np.arange(len(code)), code] = blocks.bytes
    changes[np.arange(len(code), len(times)), code[blocks.freed]] = -blocks.bytes[blocks.freed]
    order = np.argsort(times, kind="stable")
    start = np.array([before.get(kind, 0) for kind in KINDS], dtype=np.int64)
    return times[order], start + changes[order].cumsum(axis=0)


def _kept(total: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the rows that are kept: all, or the one with the most memory in each of `_POINTS` intervals."""
    if len(total) <= _POINTS:
        return np.arange(len(total))
    edges = np.linspace(0, len(total), _POINTS + 1).astype(np.int64)
    return np.array([low + int(total[low:high].argmax()) for low, high in pairwise(edges)])


def _peak_rows(
    blocks: Allocations, kinds: npt.NDArray[np.object_], before: dict[str, int], work: pd.DataFrame, moment: int
) -> pd.DataFrame:
    live = (blocks.begin_ns <= moment) & (blocks.end_ns > moment)
    maker = np.minimum(np.searchsorted(work["time_ns"], blocks.begin_ns[live]), len(work) - 1)
    rows = pd.DataFrame(
        {
            "kind": kinds[live],
            "layer": work["layer"].to_numpy(dtype=object)[maker],
            "op": work["op"].to_numpy(dtype=object)[maker],
            "bytes": blocks.bytes[live],
            "blocks": 1,
        }
    )
    summed = rows.groupby(["kind", "layer", "op"], sort=False, as_index=False)[["bytes", "blocks"]].sum()
    held = [(kind, "", "", size, 0) for kind, size in before.items() if size]
    table = pd.concat([summed, pd.DataFrame(held, columns=list(summed))], ignore_index=True)
    table["share"] = table["bytes"] / max(1, table["bytes"].sum())
    largest_first = table.sort_values("bytes", ascending=False, kind="stable", ignore_index=True)
    return AT_PEAK.frame({str(name): column for name, column in largest_first.items()})


@dataclass(frozen=True)
class MemoryOfRun:
    """Device memory of a run."""

    name: str
    timeline: MemoryTimeline
    held: Memory | None
    """Memory of the step by kind, from which remedies are predicted; None: unknown."""
    capacity_bytes: int
    """Memory of the GPU; 0: unknown."""
    modelled: bool
    remedies: tuple[Remedy, ...] = field(default=())
    """Single optimizations that lower the peak, lowest peak first."""
