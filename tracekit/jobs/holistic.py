"""Opens traces in HolisticTraceAnalysis: creates its own objects from tracekit's tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import MissingPackageError, installing
from tracekit.analyzers.trace import Trace, cache
from tracekit.jobs.rank_files import rank_files, rank_numbers

if TYPE_CHECKING:
    from hta.trace_analysis import TraceAnalysis


_CATEGORIES = {
    "op": "cpu_op",
    "range": "user_annotation",
    "runtime": "cuda_runtime",
    "module": "python_function",
    "python": "python_function",
    "overhead": "overhead",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
}
_STEP = r"ProfilerStep\s*#\s*(\d+)"
_TEXTS = {"input_dims": "shapes", "input_type": "dtypes", "input_strides": "strides"}


def hta(where: str | Path | Sequence[str | Path], *, include_last_profiler_step: bool = False) -> "TraceAnalysis":
    """Return HolisticTraceAnalysis's `TraceAnalysis` of the traces of a job's ranks, read by tracekit.

    `where` is the same as for `tracekit.ranks`. Times are whole microseconds, rounded as HolisticTraceAnalysis rounds
    them. Of the arguments, only those that tracekit reads are present; input shapes and types are text. Needs
    traceinsight (0.6) or HolisticTraceAnalysis (0.5). Raises MissingPackageError if it cannot be imported.
    """
    try:
        from hta.trace_analysis import TraceAnalysis
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == "hta"
        why = "traceinsight is not installed." if absent else f"The hta that is installed cannot be imported: {error}."
        raise MissingPackageError("tracekit.hta needs an optional package.", why, installing("hta")) from error
    files = rank_files(where)
    traces = [cache.load(path) for path in files]
    numbers, _ = rank_numbers([trace.metadata.rank for trace in traces], files)
    analysis = TraceAnalysis.__new__(TraceAnalysis)  # its __init__ reads files
    analysis.t = _filled(dict(zip(numbers, traces, strict=True)), include_last_profiler_step)
    return analysis


def _filled(traces: dict[int, Trace], include_last: bool) -> Any:
    from hta.common.trace import Trace as Filled

    filled = Filled(trace_files={})
    for rank in sorted(traces):
        events = _events(traces[rank])
        filled.symbol_table.add_symbols(pd.unique(pd.concat([events["cat"], events["name"]])).tolist())
        symbols = filled.symbol_table.get_sym_id_map()
        coded = events.assign(**{name: events[name].map(symbols).astype(np.int64) for name in ("cat", "name")})
        linked = _linked(events)
        filled.traces[rank] = coded.assign(index_correlation=linked, iteration=_iterations(events, linked))
        filled.meta_data[rank] = _metadata(traces[rank], symbols)
    filled.align_and_filter_trace(include_last)
    for rank, events in filled.traces.items():
        filled.traces[rank] = events.set_index("index", drop=False).rename_axis(None)
    filled.is_parsed = True
    return filled


def _metadata(trace: Trace, symbols: dict[str, int]) -> dict[str, Any]:
    from hta.common import trace_parser

    metadata = trace.metadata
    known = {
        "baseTimeNanoseconds": metadata.base_ns,
        "distributedInfo": {"rank": metadata.rank, "world_size": metadata.world_size},
    }
    infer = getattr(trace_parser, "infer_gpu_type", None)  # HolisticTraceAnalysis 0.5 has no type of device.
    return known | ({"device_type": infer(None, symbols)} if infer else {})


def _events(trace: Trace) -> pd.DataFrame:
    """Return host rows, then device rows, with names and categories as text."""
    host, device = trace.host, trace.device
    on_host = pd.DataFrame(
        {
            **_shared(host, trace.metadata.zero_ns),
            "pid": 0,
            "tid": host["thread"].to_numpy(),
            "stream": -1,
            "bytes": -1,
            **{name: host[column].astype(object).to_numpy() for name, column in _TEXTS.items()},
        }
    )
    on_device = pd.DataFrame(
        {
            **_shared(device, trace.metadata.zero_ns),
            "pid": device["device"].to_numpy(),
            "tid": device["stream"].to_numpy(),
            "stream": device["stream"].to_numpy(),
            "bytes": device["bytes"].to_numpy(),
            **dict.fromkeys(_TEXTS, ""),
        }
    )
    events = pd.concat([on_host, on_device], ignore_index=True)
    events.insert(0, "index", np.arange(len(events)))
    moved, time = events["bytes"].to_numpy(float), events["dur"].to_numpy(float)
    rate = np.divide(moved, time * 1e3, out=np.zeros(len(events)), where=(moved > 0) & (time > 0))
    return events.assign(memory_bw_gbps=rate)


def _shared(table: pd.DataFrame, base_ns: int) -> dict[str, npt.NDArray]:
    """Return the columns that both tables have. Starts are rounded up and ends down to microseconds, which preserves
    nesting."""
    begin = table["start_ns"].to_numpy(np.int64) + base_ns
    start, end = -(-begin // 1000), (begin + table["duration_ns"].to_numpy(np.int64)) // 1000
    category = table["category"].astype(object)
    return {
        "cat": category.replace(_CATEGORIES).to_numpy(),
        "name": table["name"].astype(object).to_numpy(),
        "ts": start,
        "dur": end - start,
        "end": end,
        "correlation": table["correlation"].to_numpy(),
        "external_id": table["external_id"].to_numpy(),
    }


def _linked(events: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return the row that launched device work, and the row that a call launched; 0: that row is missing, -1: none is
    linked."""
    correlation, on_device = events["correlation"].to_numpy(np.int64), (events["stream"] >= 0).to_numpy()
    linked = np.minimum(correlation, 0)
    for mine in (on_device, ~on_device):
        others = events[~mine & (correlation >= 0)].drop_duplicates("correlation", keep="last")
        row = events["correlation"][mine & (correlation >= 0)].map(others.set_index("correlation")["index"])
        linked[row.index] = row.fillna(0).astype(np.int64)
    return linked


def _iterations(events: pd.DataFrame, linked: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the profiler's step of each event; -1 for none. Device work belongs to the step in which it was
    launched."""
    number = events["name"].str.extract(_STEP, expand=False)
    marks = events[number.notna() & (events["stream"] < 0)]
    steps = pd.DataFrame({"ts": marks["ts"], "end": marks["end"], "step": number[marks.index].astype(np.int64)})
    steps, start = steps.sort_values("ts"), events["ts"].to_numpy()
    at = np.searchsorted(steps["ts"].to_numpy(), start, "right") - 1
    inside = (at >= 0) & (start < np.append(steps["end"].to_numpy(), 0)[at])
    of = np.where(inside, np.append(steps["step"].to_numpy(), -1)[at], -1)
    on_device = (events["stream"] >= 0).to_numpy()
    return np.where(on_device, np.where(linked > 0, of[np.maximum(linked, 0)], -1), of)
