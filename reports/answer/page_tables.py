"""The tables of the report's page and their columns."""

import pandas as pd

from tracekit.analyzers.core import Column, Table
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import CaptureInfo
from tracekit.reports.figures import moves_table
from tracekit.reports.words import Kind, TableView, table_view

Spec = list[tuple[str, str, Kind]]


def table_views(analysis: Analysis, row_limit: int) -> dict[str, TableView]:
    """Return the tables that have rows, each with at most `row_limit` of them, by their ids."""
    time = "GPU time" if analysis.source.device == "gpu" else "CPU time"
    specs: list[tuple[str, str, pd.DataFrame, Spec]] = [
        ("layer_types", "By type of layer", analysis.layer_types, _layer_types(time, analysis)),
        ("layer_parts", "Parts of layers", analysis.layer_parts, _layer_parts(time)),
        ("phases", "By phase", analysis.phases, _phases(time)),
        ("layers", "Layers", analysis.layers, _layers(time)),
        ("ops", "Ops", analysis.ops, _ops(time)),
        ("kernels", "Kernels", analysis.kernels, _kernels(time)),
        ("ranges", "Ranges", analysis.ranges, _RANGES),
        ("steps", "Steps", analysis.timeline.steps, _STEPS),
        ("idle_causes", "Idle time by cause", analysis.idle_causes, _IDLE),
        ("host_causes", "What the host did meanwhile", host_causes_in_all(analysis), _HOST),
        ("roofline_moves", "Before and after", moves_table(analysis), _MOVES),
        ("fusion_plan", "Fusion plan", analysis.fusion_plan, _FUSION),
        ("memory", "Memory", memory_table(analysis), _MEMORY),
        ("counters_comparison", "Measured and counted", analysis.counters_comparison, _COUNTERS),
        ("problems", "Problems", analysis.problems, _PROBLEMS),
    ]
    views = [
        table_view(name, title, frame, _without_copies(spec, frame), row_limit)
        for name, title, frame, spec in specs
        if len(frame)
    ]
    return {view.id: view for view in views}


_DURATION: tuple[str, str, Kind] = ("duration_ns", "durations", "time")


def _without_copies(spec: Spec, frame: pd.DataFrame) -> Spec:
    """Return the columns without durations, unless work overlaps: otherwise they equal the busy times."""
    overlaps = "duration_ns" in frame and bool((frame["duration_ns"] != frame["busy_ns"]).any())
    return spec if overlaps else [column for column in spec if column != _DURATION]


_COST: Spec = [("flops", "FLOPs", "flops"), ("bytes", "bytes", "bytes")]
_ROOF: Spec = [("intensity", "FLOP/B", "ratio"), ("roof_fraction", "of roof", "share")]
_BOUND: Spec = [("bound", "bound", "bound"), ("own_bound", "own bound", "bound")]
_COUNTERS: Spec = [
    ("family", "family", "name"),
    ("kernels", "kernels", "count"),
    ("share", "share", "share"),
    ("counted_flops", "FLOPs, counted", "flops"),
    ("measured_flops", "FLOPs, measured", "flops"),
    ("flops_ratio", "ratio of FLOPs", "ratio"),
    ("counted_bytes", "bytes, counted", "bytes"),
    ("measured_bytes", "bytes, measured", "bytes"),
    ("bytes_ratio", "ratio of bytes", "ratio"),
]
_RANGES: Spec = [
    ("name", "range", "name"),
    ("category", "kind", "text"),
    ("calls", "calls", "count"),
    ("projected_ns", "on the device", "time"),
    ("mean_ns", "mean", "time"),
    ("max_ns", "longest", "time"),
    ("cpu_ns", "host time", "time"),
    ("kernels", "kernels", "count"),
]
_STEPS: Spec = [
    ("step", "step", "name"),
    ("wall_ns", "length", "time"),
    ("busy_ns", "busy", "time"),
    ("idle_ns", "idle", "time"),
    ("kernels", "kernels", "count"),
]
_IDLE: Spec = [
    ("cause", "cause", "cause"),
    ("idle_ns", "idle", "time"),
    ("share", "share", "share"),
    ("gaps", "gaps", "count"),
    ("mean_ns", "mean", "time"),
    ("max_ns", "longest", "time"),
    ("op", "most before", "text"),
    ("meaning", "what it means", "prose"),
]
_HOST: Spec = [
    ("cause", "cause", "cause"),
    ("name", "what ran", "name"),
    ("idle_ns", "idle", "time"),
    ("gaps", "gaps", "count"),
    ("location", "where", "text"),
    ("caller", "called by", "text"),
]
_MOVES: Spec = [
    ("part", "part", "name"),
    ("before_ns", "time before", "time"),
    ("after_ns", "after", "time"),
    ("before_intensity", "FLOP/B before", "ratio"),
    ("after_intensity", "after", "ratio"),
    ("before_rate", "GFLOP/s before", "ratio"),
    ("after_rate", "after", "ratio"),
    ("precision", "in", "text"),
    ("prediction", "with", "prose"),
]
_FUSION: Spec = [
    ("number", "no.", "count"),
    ("pattern", "pattern", "name"),
    ("layer", "layer", "text"),
    ("ops", "ops", "prose"),
    ("basis", "found by", "text"),
    ("kernel", "kernel", "text"),
    ("library", "library", "prose"),
    ("groups", "groups", "count"),
    ("launches_saved", "launches saved", "count"),
    ("bytes_before", "bytes", "bytes"),
    ("bytes_after", "bytes after", "bytes"),
    ("before_ns", "time", "time"),
    ("after_ns", "time after, predicted", "time"),
    ("measured_ns", "time after, measured", "time"),
    ("compiled_ns", "by torch.compile", "time"),
    ("roof_fraction", "of roof", "share"),
    ("reason", "why this tile", "prose"),
    ("tile", "tile", "text"),
    ("grid", "blocks", "count"),
    ("warps", "warps", "count"),
    ("stages", "stages", "count"),
    ("shared_bytes", "shared", "bytes"),
    ("registers", "registers", "count"),
    ("occupancy", "occupancy", "share"),
]
_MEMORY: Spec = [("what", "what", "name"), ("bytes", "size", "bytes"), ("of_device", "of the device", "share")]
_PROBLEMS: Spec = [
    ("severity", "severity", "text"),
    ("count", "count", "count"),
    ("message", "what was seen", "prose"),
    ("advice", "what to do", "prose"),
    ("code", "code", "text"),
]


def _time(label: str) -> Spec:
    return [("busy_ns", label, "time"), ("share", "share", "share"), _DURATION]


def _layer_types(time: str, analysis: Analysis) -> Spec:
    own: Spec = [("self_busy_ns", "own time", "time")]
    if analysis.layer_types["synchronized_share"].notna().any():
        own.insert(0, ("synchronized_share", "synchronized", "share"))
    return [("type", "type", "name"), ("layers", "layers", "count"), *_time(time), *own, *_COST, *_BOUND]


def _layer_parts(time: str) -> Spec:
    head: Spec = [("part", "part", "name"), ("inside", "inside", "text"), ("layers", "layers", "count")]
    passes: Spec = [("forward_ns", "forward", "time"), ("backward_ns", "backward", "time")]
    return [
        *head,
        ("calls", "calls", "count"),
        *_time(time),
        ("share_inside", "of it", "share"),
        *passes,
        *_COST,
        *_BOUND,
    ]


def _phases(time: str) -> Spec:
    wall: Spec = [("calls", "calls", "count"), ("wall_ns", "host time", "time")]
    return [("name", "phase", "name"), *wall, *_time(time), ("kernels", "kernels", "count"), *_COST, *_BOUND]


def _layers(time: str) -> Spec:
    head: Spec = [("path", "layer", "name"), ("type", "type", "text"), ("calls", "calls", "count")]
    own: Spec = [("self_busy_ns", "own time", "time"), ("cpu_ns", "host time", "time"), ("kernels", "kernels", "count")]
    return [*head, *_time(time), *own, *_COST, *_BOUND]


def _ops(time: str) -> Spec:
    head: Spec = [("name", "op", "name"), ("family", "family", "text"), ("calls", "calls", "count")]
    return [*head, *_time(time), ("cpu_ns", "host time", "time"), *_COST, *_ROOF, *_BOUND]


def _kernels(time: str) -> Spec:
    head: Spec = [("name", "kernel", "name"), ("calls", "calls", "count")]
    where: Spec = [("mean_ns", "mean", "time"), ("op", "op", "text"), ("layer", "layer type", "text")]
    return [*head, *_time(time), *where, *_COST, *_ROOF, *_BOUND]


def host_causes_in_all(analysis: Analysis) -> pd.DataFrame:
    """Return HOST_CAUSES summed over all steps, without unnamed rows; the most idle time is first."""
    keys = ["cause", "name", "location", "caller"]
    named = analysis.host_causes[analysis.host_causes["name"] != ""]
    sums = named.groupby(keys, sort=False)[["gaps", "idle_ns"]].sum().reset_index()
    return sums.sort_values("idle_ns", ascending=False, kind="stable", ignore_index=True)


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
