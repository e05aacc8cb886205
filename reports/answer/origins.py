"""States where each kind of number comes from, the command that made it, and what was left out."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tracekit.analyzers.results import Analysis, Source
from tracekit.reports.answer.facts import covered
from tracekit.reports.words import TableView, percent, printable, shell_word

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


@dataclass(frozen=True)
class Origin:
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
        *_roofs(source),
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


def _roofs(source: Source) -> list[Origin]:
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
