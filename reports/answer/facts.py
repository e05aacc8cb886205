"""The figures under the headline; the origin of each kind of number, the command that made it, what was left out."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from tracekit.analyzers.results import Analysis, CounterSource, Source
from tracekit.reports.words import (
    BETWEEN,
    FIRST,
    TableView,
    duration,
    percent,
    printable,
    quantity,
    shell_word,
    significant,
    tokens_per_s,
)

_TASKS = {FIRST: "Time to first token", BETWEEN: "Time between tokens"}


class Fact(msgspec.Struct, frozen=True):
    label: str
    value: str
    note: str = ""


def key_figures(analysis: Analysis) -> list[Fact]:
    """Return at most seven figures: latency, its parts, and memory."""
    capture, start, line = analysis.source.capture, analysis.predicted_from, analysis.timeline
    device = "GPU" if analysis.source.device == "gpu" else "CPU"
    busy_us = start.busy_us if start else line.busy_ns / max(1, len(line.steps)) / 1000
    facts = [
        *_latency(analysis),
        Fact(f"{device} busy", percent(analysis.busy_share), f"{duration(busy_us)} per step"),
        Fact(f"{device} idle", percent(1 - analysis.busy_share), _idle_for(analysis)),
    ]
    for name, latency in capture.phases.items() if capture else ():
        facts.append(
            Fact(
                _TASKS.get(name, name.capitalize()),
                duration(latency.median_us),
                spread(latency.p10_us, latency.p90_us),
            )
        )
    if capture and BETWEEN in capture.phases:
        rate = tokens_per_s(capture.phases[BETWEEN], capture.batch_size)
        facts.append(Fact("Tokens a second", significant(rate), "while decoding"))
    if capture and capture.peak_memory_bytes:
        weights = f"weights {quantity(capture.weight_bytes, 'B')}" if capture.weight_bytes else ""
        facts.append(Fact("Peak memory", quantity(capture.peak_memory_bytes, "B"), weights))
    return facts


def _idle_for(analysis: Analysis) -> str:
    """Return the cause of most of the idle time, with its share."""
    if analysis.idle_causes.empty:
        return ""
    most = analysis.idle_causes.iloc[0]
    return f"{percent(most['share'])} of it for {most['cause']}"


def _latency(analysis: Analysis) -> list[Fact]:
    timed, profiled = analysis.latency.unprofiled, duration(analysis.latency.profiled_us)
    start = analysis.predicted_from
    if timed is None and analysis.source.kind == "modelled":
        return [Fact("Step", profiled)]
    if timed is None and start and start.profiler_share:
        without = duration(start.unprofiled_us)
        return [
            Fact("Step", without, "estimated without the profiler"),
            Fact("Step, profiled", profiled, "as in the trace"),
        ]
    if timed is None:
        return [Fact("Step", profiled, "with the profiler")]
    note = spread(timed.p10_us, timed.p90_us)
    if analysis.source.kind == "modelled":
        return [Fact("Step", duration(timed.median_us), note)]
    return [Fact("Step", duration(timed.median_us), note), Fact("Step, profiled", profiled, "as in the trace")]


def spread(low_us: float, high_us: float) -> str:
    return f"{duration(low_us)} to {duration(high_us)}" if high_us > low_us else ""


def covered(counters: CounterSource) -> str:
    share = percent(counters.busy_share)
    return f"{counters.matched:,} of {counters.kernels:,} kernels, {share} of the busy time"


def provenance(analysis: Analysis) -> list[Fact]:
    """Return device, settings, versions, and coverage; unknown values are left out."""
    source, coverage = analysis.source, analysis.coverage
    facts = [
        Fact("Trace format", source.format),
        Fact(
            "Modelled for" if source.kind == "modelled" else "Device",
            source.device_name or ("CPU" if source.device == "cpu" else "not recorded"),
        ),
        *_recorded_on(source),
        *_roofs(analysis),
        *_capture(analysis),
        Fact("Measured counters", covered(source.counters) if source.counters else "", "by Nsight Compute"),
        Fact("Layers found by", source.layers_from),
        Fact("Busy time with an op", percent(coverage.op)),
        Fact("Busy time with a layer", percent(coverage.layer)),
        Fact("Busy time with FLOPs and bytes", percent(coverage.cost)),
    ]
    return [Fact(fact.label, printable(fact.value), fact.note) for fact in facts if fact.value]


def _recorded_on(source: Source) -> list[Fact]:
    """Return how the ops of a modelled run were recorded."""
    words = {"cpu": "the CPU, with real tensors", "fake tensors": "fake tensors, which have shapes but no data"}
    recorded = words.get(source.capture.recorded_on) if source.capture else None
    return [Fact("Ops recorded on", recorded)] if recorded else []


def _roofs(analysis: Analysis) -> list[Fact]:
    gpu = analysis.source.gpu
    if gpu is None:
        return []
    peaks = ", ".join(f"{name} {significant(peak)}" for name, peak in gpu.peaks_tflops.items())
    return [
        Fact("Roofs of", gpu.name, gpu.source),
        Fact("Bandwidth", f"{significant(gpu.bandwidth_gbs)} GB/s"),
        Fact("Dense peaks (TFLOP/s)", peaks),
    ]


def _capture(analysis: Analysis) -> list[Fact]:
    capture = analysis.source.capture
    if capture is None:
        return []
    clocks = f"{capture.sm_clock_mhz} MHz SM, {capture.memory_clock_mhz} MHz memory" if capture.sm_clock_mhz else ""
    tokens = f", {capture.new_tokens} new tokens" if capture.new_tokens else ""
    shape = f"batch {capture.batch_size}, {capture.seq_len} tokens{tokens}" if capture.batch_size else ""
    settings = (
        capture.dtype,
        f"{capture.attention} attention" if capture.attention else "",
        f"{capture.weights} weights" if capture.weights else "",
    )
    return [
        Fact("Driver", capture.driver),
        Fact("Clocks", clocks),
        Fact("Model", capture.model),
        Fact("Parameters", f"{capture.parameters:,}" if capture.parameters else ""),
        Fact("Workload", ", ".join(part for part in (capture.workload, shape) if part)),
        Fact("Settings", ", ".join(part for part in settings if part)),
        Fact("Steps recorded", str(capture.steps) if capture.steps else ""),
        Fact(
            "Host time an op",
            f"{significant(capture.host_op_us)} µs" if capture.host_op_us else "",
            capture.host_source or "assumed",
        ),
        Fact("Versions", ", ".join(f"{name} {version}" for name, version in capture.versions.items())),
        Fact("tracekit", capture.version),
    ]


Kind = Literal["measured", "modelled", "imported", "counted", "predicted", "derived", "data sheet"]

_KERNELS = {
    "measured": "recorded by torch.profiler on the device named here",
    "modelled": "a model of the GPU named here gave each op, recorded on fake tensors, its kernel time",
    "imported": "as another tool recorded them",
}
_STEP = {
    "measured": "timed again without the profiler, which slows the host; predictions start from it",
    "modelled": "the end of a simulated host and device timeline",
    "imported": "as in the trace, with the profiler's overhead: nothing was timed without it",
}


class Origin(msgspec.Struct, frozen=True):
    number: str
    kind: Kind
    how: str


def origins(analysis: Analysis) -> list[Origin]:
    source = analysis.source
    return [
        Origin("times of kernels and ops", source.kind, _KERNELS[source.kind]),
        Origin("latency of a step", source.kind, _STEP[source.kind]),
        Origin("shares, times of layers", "derived", "overlapping work counts once; own times sum to the busy time"),
        Origin("layers", "derived", _layers(source)),
        Origin("FLOPs and bytes", "counted", _counted()),
        *_measured_counters(source),
        *_roof_origins(source),
        Origin("bounds", "derived", "the larger of the roof times, or the reason why neither is reached"),
        *_idle(analysis),
        *_memory(source),
        Origin(
            "speed-ups",
            "predicted",
            "ops re-timed and the step simulated again; 80 % of measurements are expected inside the interval",
        ),
    ]


def _layers(source: Source) -> str:
    if source.layers_from == "none":
        return "the trace names no layers"
    return f"from {source.layers_from}: those that were open on the host when the work was launched"


def _counted() -> str:
    return "from shapes and types: 2 FLOPs per multiply-add, each input read once, each output written once"


def _measured_counters(source: Source) -> list[Origin]:
    if source.counters is None:
        return []
    how = f"by Nsight Compute for {covered(source.counters)}: each kernel separately, with cold caches"
    return [Origin("FLOPs and bytes", "measured", how)]


def _roof_origins(source: Source) -> list[Origin]:
    if source.gpu is None:
        return []
    return [
        Origin("roofs, solid", "data sheet", source.gpu.source),
        Origin("roofs, dotted", "measured" if "measured" in source.gpu.basis else "modelled", source.gpu.basis),
    ]


def _idle(analysis: Analysis) -> list[Origin]:
    if analysis.gaps.empty:
        return []
    how = "gaps between pieces of work, as in the trace; their cause is the host's activity until the next launch"
    return [Origin("idle time and its causes", "derived", how)]


def _memory(source: Source) -> list[Origin]:
    if source.capture is None or not source.capture.peak_memory_bytes:
        return []
    how = "the allocator's peak" if source.kind == "measured" else "summed over the tensors alive in the recorded run"
    return [Origin("peak memory", "measured" if source.kind == "measured" else "modelled", how)]


def dropped(analysis: Analysis, tables: Iterable[TableView], notes: Iterable[str]) -> list[str]:
    """Return sentences on what this page leaves out, or the trace did not contain."""
    lost = analysis.problems[analysis.problems["severity"] != "info"]
    coverage = analysis.coverage
    parts = {"an op": coverage.op, "a layer": coverage.layer, "counted FLOPs and bytes": coverage.cost}
    sentences = [
        f"{percent(1 - share)} of the busy time is without {what}." for what, share in parts.items() if share < 1
    ]
    sentences += [f"{view.title}: {view.left_out:,} rows of least time." for view in tables if view.left_out]
    sentences += [note for note in notes if "left out" in note or "Not on" in note or "Drawn" in note]
    sentences += [printable(str(message)) for message in lost["message"]]
    return sentences or ["Nothing: everything in the trace was read and is counted."]


def command(analysis: Analysis) -> str:
    """Return the command that repeats the run; "" if no single command made it."""
    capture = analysis.source.capture
    if capture is None or not capture.model or not capture.workload:
        return ""
    options = {
        "model": capture.model,
        "gpu": capture.gpu,
        "workload": capture.workload,
        "batch-size": capture.batch_size,
        "seq-len": capture.seq_len,
        "new-tokens": capture.new_tokens,
        "dtype": capture.dtype,
        "attention": capture.attention,
        "device": capture.device,
        "weights": capture.weights,
        "steps": capture.steps,
    }
    words = [f"--{name} {shell_word(str(value))}" for name, value in options.items() if value]
    return "tracekit profile " + " ".join(words)
