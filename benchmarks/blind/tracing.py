"""Records some steps with torch.profiler, as a user does."""

import gzip
import json
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from annotating import annotated
from timing import wait
from torch.profiler import ProfilerActivity, profile, schedule

MOST_BYTES = 600_000
_STEPS = (3, 1)
"""Number of recorded steps; fewer if the trace gets too large."""
_KEPT = (
    *("schemaVersion", "deviceProperties", "cupti_version", "cuda_runtime_version", "cuda_driver_version"),
    *("record_shapes", "with_stack", "baseTimeNanoseconds", "displayTimeUnit", "traceEvents"),
)
"""Keys that are kept; others may name the machine."""


def record(step: Any, out: Path, with_ranges: bool) -> dict[str, int]:
    """Write the trace; return its size and its number of steps."""
    for count in _STEPS:
        with annotated(step) if with_ranges else nullcontext():
            size = _write(_profiled(step, count), out)
        if size <= MOST_BYTES:
            break
    return {"bytes": size, "steps": count}


def _profiled(step: Any, count: int) -> profile:
    step.restart()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if step.on_cuda else [])]
    plan = schedule(wait=0, warmup=1, active=count, repeat=1)
    with profile(activities=activities, schedule=plan, record_shapes=True) as profiler:
        for _ in range(count + 1):
            step()
            wait()
            profiler.step()
    return profiler


def _write(profiler: profile, out: Path) -> int:
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(exported))
        held = json.loads(exported.read_text(encoding="utf-8"))
    kept = {key: held[key] for key in _KEPT if key in held}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), compresslevel=9, mtime=0))
    return out.stat().st_size
