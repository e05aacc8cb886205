"""The figures under the headline, and the origin of every number on the page."""

import msgspec

from tracekit.analyzers.results import Analysis, CounterSource, Source
from tracekit.reports.words import BETWEEN, FIRST, duration, percent, printable, quantity, significant, tokens_per_s

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
    if timed is None:
        return [Fact("Step", profiled, "" if analysis.source.kind == "modelled" else "with the profiler")]
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
