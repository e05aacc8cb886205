"""Device memory as a table: the parts of the peak, and the capacity of the device."""

import pandas as pd

from tracekit.analyzers.capture_info import CaptureInfo
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.schema import Column, Table

MEMORY = Table(
    "memory",
    "Device memory at the peak of a step.",
    Column("what", "object", "", "use of the memory"),
    Column("bytes", "int64", "B", "bytes, decimal prefixes"),
    Column("of_device", "float64", "", "part of the device's memory; NaN: device unknown"),
)


_WHAT = {
    "weights": "weights",
    "buffers": "buffers of the model",
    "gradients": "gradients",
    "optimizer_state": "state of the optimizer",
    "kv_cache": "KV cache",
    "activations": "activations and other tensors of a step",
    "loss": "gradients of the logits",
    "workspaces": "workspaces of libraries",
}


def _parts(analysis: Analysis, capture: CaptureInfo) -> list[tuple[str, int]]:
    """Return the known parts of the peak, with their sizes in bytes."""
    held = analysis.predicted_from.memory if analysis.predicted_from else None
    if held:
        return [(what, size) for name, what in _WHAT.items() if (size := getattr(held, name))]
    weights = min(capture.weight_bytes, capture.peak_memory_bytes)
    return [("weights", weights), ("everything else", capture.peak_memory_bytes - weights)]


def memory_table(analysis: Analysis) -> pd.DataFrame:
    """Return the table MEMORY; it is empty if the trace does not state peak memory."""
    capture, gpu = analysis.source.capture, analysis.source.gpu
    if capture is None or not capture.peak_memory_bytes:
        return MEMORY.empty()
    rows = [*_parts(analysis, capture), ("peak of a step", capture.peak_memory_bytes)]
    if gpu:
        rows.append((f"capacity of {gpu.name}", gpu.memory_bytes))
    what, size = zip(*rows, strict=True)
    device = float(gpu.memory_bytes) if gpu else float("nan")
    return MEMORY.frame({"what": what, "bytes": size, "of_device": [each / device for each in size]})
