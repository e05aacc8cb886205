"""Adds captures of CUDA graphs that were recorded in separate traces to the trace of their replays.

Serving engines capture their graphs while they start, and record the captures in a file for each batch size. The host
events of the captures are taken from these files. The kernels of the replays are then linked to the captured ops as in
a single trace.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from msgspec.structs import replace
from pandas.api.types import union_categoricals

from tracekit.analyzers.attribute.captures import MERGED
from tracekit.analyzers.attribute.host import capture_spans
from tracekit.analyzers.attribute.recorded_ranges import UserRanges, is_step_name
from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import HOST, Trace, problem, problems

_IDS = ("correlation", "sequence")
_TEXTS = tuple(column.name for column in HOST.columns if column.dtype == "category")
_BETWEEN_NS = 1_000


class _Part(msgspec.Struct, frozen=True):
    """Host rows from a file of captures. Times begin at 0."""

    name: str
    rows: dict[str, Any]
    threads: tuple[str, ...]
    length_ns: int
    captures: int
    recorded_ns: int
    """When its first capture began, on the clock of the recorder."""


def with_captures(trace: Trace, files: Sequence[tuple[str, Trace]]) -> Trace:
    """Return the trace with the captures of the given traces added. Raises InputError if none of them holds a
    capture."""
    rank = trace.metadata.rank
    same_rank = [each for each in files if rank is None or each[1].metadata.rank in (None, rank)]
    parts = [part for name, captured in same_rank if (part := _part(name, captured)) is not None]
    if not parts:
        raise InputError(
            "The given traces contain no capture of a CUDA graph.",
            f"{len(files) - len(same_rank)} of {len(files)} are of other ranks; no other one has a call that begins a "
            "capture and one that ends it.",
            "Record the captures with torch.profiler (vLLM: capture_torch_profiler), and name their files or folder.",
        )
    parts.sort(key=lambda part: part.recorded_ns)
    captures, without = sum(part.captures for part in parts), len(files) - len(parts)
    rows = [problem("merged-captures", captures, f"{len(parts)} file{'s' * (len(parts) > 1)}")]
    rows.append(problem("files-without-captures", without))
    metadata = replace(trace.metadata, threads=(*trace.metadata.threads, *(t for part in parts for t in part.threads)))
    problem_rows = problems.concat(trace.problems, problems.table(rows))
    return replace(trace, metadata=metadata, host=_joined(trace, parts), problems=problem_rows)


def _part(name: str, trace: Trace) -> _Part | None:
    host = trace.host
    spans = capture_spans(host)
    if not spans:
        return None
    start, duration = (host[column].to_numpy().astype(np.int64) for column in ("start_ns", "duration_ns"))
    first, last = spans[0][0], max(end for _, end in spans)
    kept = np.zeros(len(host), dtype=bool)
    for begin, end in spans:
        kept |= ((start >= begin) & (start <= end)) | ((start < begin) & (start + duration > begin))
    kept &= ~UserRanges(host).are(is_step_name)
    begins = np.maximum(start[kept], first)
    ends = np.minimum(start[kept] + duration[kept], last)
    rows = {column.name: host[column.name][kept].array for column in HOST.columns}
    rows |= {"start_ns": begins - first, "duration_ns": np.maximum(ends - begins, 0)}
    rows["external_id"] = np.full(len(begins), -1)
    recorded_ns = trace.metadata.base_ns + first
    return _Part(name, rows, trace.metadata.threads, last - first, len(spans), recorded_ns)


def _joined(trace: Trace, parts: Sequence[_Part]) -> pd.DataFrame:
    """Return the host table with the concatenated rows of the parts before its own rows."""
    host = trace.host
    known = [int(table["start_ns"].min()) for table in (host, trace.device) if len(table)]
    at = min(known) - sum(part.length_ns + _BETWEEN_NS for part in parts)
    ids = {name: _largest(trace, name) + 1 for name in _IDS}
    tables = [{column.name: host[column.name].array for column in HOST.columns}]
    thread = len(trace.metadata.threads)
    for part in parts:
        tables.append(_placed(part, at, thread, ids))
        tables.append(_label(part, at, thread))
        at, thread = at + part.length_ns + _BETWEEN_NS, thread + len(part.threads)
        ids = {name: number + int(max(part.rows[name].max(), 0)) + 1 for name, number in ids.items()}
    joined = {
        column.name: _concatenated([table[column.name] for table in tables], column.name) for column in HOST.columns
    }
    order = np.lexsort((-joined["duration_ns"], joined["start_ns"], joined["thread"]))
    return HOST.frame({name: values[order] for name, values in joined.items()})


def _largest(trace: Trace, name: str) -> int:
    tables = (table for table in (trace.host, trace.device) if name in table and len(table))
    return max((int(table[name].max()) for table in tables), default=0)


def _placed(part: _Part, at: int, thread: int, ids: dict[str, int]) -> dict[str, Any]:
    rows = dict(part.rows)
    rows["start_ns"] = rows["start_ns"] + at
    rows["thread"] = np.asarray(rows["thread"]).astype(np.int32) + thread
    for name, offset in ids.items():
        values = np.asarray(rows[name]).astype(np.int64)
        rows[name] = np.where(values >= 0, values + offset, values)
    return rows


def _label(part: _Part, at: int, thread: int) -> dict[str, Any]:
    """Return a row named like the file, from which the batch size of its captures is read."""
    values = {"start_ns": [at], "duration_ns": [part.length_ns], "thread": [thread], "category": ["overhead"]}
    row = HOST.partial({**values, "name": [f"{MERGED}{part.name}"]})
    return {column.name: row[column.name].array for column in HOST.columns}


def _concatenated(arrays: list[Any], name: str) -> Any:
    if name in _TEXTS:
        return union_categoricals([_as_objects(pd.Categorical(array)) for array in arrays])
    return np.concatenate([np.asarray(array) for array in arrays])


def _as_objects(texts: pd.Categorical) -> pd.Categorical:
    """Return the same texts as categories of dtype object, because the categories of an empty column have another
    dtype."""
    return pd.Categorical.from_codes(texts.codes, categories=texts.categories.astype(object))
