"""Adds the settings in a run's record to its trace, as tracekit's own captures do."""

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
from plan import Run

import tracekit
from tracekit.analyzers.trace import CaptureInfo, Latency


def stated(trace: Path, run: Run, row: dict[str, Any], machine: dict[str, Any], out: Path) -> Path:
    """Write the trace with the run's settings and its latency without a profiler into the folder `out`."""
    info = msgspec.to_builtins(_info(run, row, machine))
    held = json.loads(gzip.decompress(trace.read_bytes()))
    held.pop("tracekit", None)
    target = out / trace.name
    target.write_bytes(gzip.compress(json.dumps({"tracekit": info, **held}).encode(), compresslevel=1))
    return target


def _info(run: Run, row: dict[str, Any], machine: dict[str, Any]) -> CaptureInfo:
    took = _both(row)
    return CaptureInfo(
        version=tracekit.__version__,
        source="measured",
        device="cuda" if machine["gpu"] else "cpu",
        gpu="",
        device_name=machine["gpu"],
        driver=machine["driver"],
        versions={name: machine[name] for name in ("python", "torch", "transformers")},
        model=run.model,
        workload=run.workload,
        batch_size=run.batch,
        seq_len=run.length,
        dtype=run.dtype,
        attention=run.attention or "eager",
        weights="random",
        parameters=row["parameters"],
        weight_bytes=row["weight_bytes"],
        buffer_bytes=row["buffer_bytes"],
        steps=row["trace_with_ranges"]["steps"],
        latency=Latency(1e3 * took["median"], 1e3 * took["p10"], 1e3 * took["p90"], took["samples"]),
        peak_memory_bytes=row["peak_bytes"],
    )


def _both(row: dict[str, Any]) -> dict[str, Any]:
    """Return the latency of a step over both processes that timed it: the mean of the medians, and the widest ends."""
    first, again = row["step_ms"], row.get("again_ms", row["step_ms"])
    middle = (first["median"] * again["median"]) ** 0.5
    ends = {"p10": min(first["p10"], again["p10"]), "p90": max(first["p90"], again["p90"])}
    return {"median": middle, **ends, "samples": first["samples"] + again["samples"] * (again is not first)}
