"""Creates torch.profiler with shapes, synchronizes the device, and exports the trace."""

import tempfile
from pathlib import Path
from typing import Any

from tracekit.analyzers.capture_info import CaptureInfo
from tracekit.capture.packages import require
from tracekit.capture.stamp import stamp


def new_profiler() -> Any:
    """Return a profiler of the host and of all devices present. It begins with prepare_trace and start_trace."""
    profiler = require("torch.profiler")
    return profiler.profile(activities=profiler.supported_activities(), record_shapes=True, acc_events=True)


def synchronize() -> None:
    """Wait for the device's work, so that it is recorded as part of its step."""
    cuda = require("torch.cuda")
    if cuda.is_available() and cuda.is_initialized():
        cuda.synchronize()


def export(profiler: Any, target: Path, info: CaptureInfo) -> None:
    """Write the recording of a stopped profiler as a tracekit trace, through a temporary file in the same folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".trace-", dir=target.parent) as folder:
        exported = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(exported))
        stamp(exported, target, info)
