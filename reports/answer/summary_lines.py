"""An analysis as a summary of ten lines."""

import pandas as pd

from tracekit.analyzers.results import Analysis, Projection
from tracekit.analyzers.trace import Latency
from tracekit.reports.answer.facts import spread
from tracekit.reports.answer.headlines import headline
from tracekit.reports.words import (
    duration,
    in_sentence,
    percent,
    printable,
    sentences,
    shortened,
    speedup,
    token_times,
)

_KIND = {
    "measured": "measured",
    "modelled": "MODELLED: every number is a prediction, nothing was measured",
    "imported": "imported",
}
_SEVERITIES = ("error", "warning", "info")
_SHOWN = 3
_NOTABLE = 0.01
_INDENT = 12


def summary(analysis: Analysis) -> str:
    """Return about ten lines of plain text."""
    *first, coverage, problems = lines(analysis)
    advice = [("next" if rank == 0 else "", _advice(analysis, rank)) for rank in range(_advised(analysis))]
    said = [f"  {label:<{_INDENT - 2}}{printable(text)}" for label, text in (*first, *advice, coverage, problems)]
    return "\n".join([printable(headline(analysis)), *said])


def lines(analysis: Analysis) -> list[tuple[str, str]]:
    """Return pairs of a label and a text, without the headline."""
    found = [
        ("source", _source(analysis)),
        ("step", _latency(analysis)),
        *([("tokens", tokens)] if (tokens := token_times(analysis)) else []),
        ("bound", _bounds(analysis)),
        *(("devices", text) for text in _devices(analysis)),
        ("layers", _top(_own_time(analysis))),
        ("kernels", _top(analysis.kernels)),
        *(("plan", text) for text in _plan(analysis)),
        ("coverage", _coverage(analysis)),
        ("problems", _problems(analysis)),
    ]
    if analysis.projection:
        found.insert(2, ("projected", _projection(analysis)))
    return found


def _source(analysis: Analysis) -> str:
    source = analysis.source
    modelled_or_nameless = source.kind == "modelled" or not source.device_name
    name = source.gpu.name if source.gpu and modelled_or_nameless else source.device_name
    ran = "its ops recorded on the CPU" if source.capture and source.capture.recorded_on == "cpu" else ""
    return ", ".join(
        part for part in (_KIND[source.kind], name or source.device, source.precision, source.format, ran) if part
    )


def _latency(analysis: Analysis) -> str:
    timed, profiled = analysis.latency.unprofiled, f"{duration(analysis.latency.profiled_us)} in the trace"
    took = _took(timed) if timed else ""
    if analysis.source.kind == "modelled":
        parts = [f"MODELLED {took or duration(analysis.latency.profiled_us)}"]
    else:
        parts = [f"unprofiled {took}", profiled] if timed else [profiled]
    busy, device = analysis.busy_share, "GPU" if analysis.source.device == "gpu" else "CPU"
    start = analysis.predicted_from
    if start and start.profiler_share:
        parts = [f"{profiled}, GPU idle {percent(start.profiled_idle_share)}"]
        parts.append(f"about {duration(start.unprofiled_us)} without the profiler")
    return "; ".join([*parts, f"{device} busy {percent(busy)}, idle {percent(1 - busy)}"])


def _took(timed: Latency) -> str:
    ends = spread(timed.p10_us, timed.p90_us)
    return f"{duration(timed.median_us)} ({ends})" if ends else duration(timed.median_us)


def _projection(analysis: Analysis) -> str:
    projection = analysis.projection
    if projection is None:
        return ""
    low, high = duration(projection.latency_us.low), duration(projection.latency_us.high)
    return f"{_misfit(projection)}{low} to {high} per step on {projection.gpu.name} (MODELLED from this run)"


def _misfit(projection: Projection) -> str:
    if projection.fits:
        return ""
    least = "at least " if projection.memory_at_least else ""
    needed = (projection.memory_bytes or 0) / 1e9
    return f"does not fit, it needs {least}{needed:,.1f} of {projection.gpu.memory_gb:g} GB; with enough memory "


def _bounds(analysis: Analysis) -> str:
    return ", ".join(f"{name} {percent(share)}" for name, share in analysis.bound.ranked() if share > 0)


def _devices(analysis: Analysis) -> list[str]:
    """Return the shares of compute, copies and communication, if there is more than compute."""
    device = analysis.timeline.device
    if device is None or not device.communication_ns + device.copy_ns:
        return []
    if not device.communication_ns and device.copy_ns < _NOTABLE * device.span_ns:
        return []
    span = max(1, device.span_ns)
    parts = [f"compute {percent(device.compute_ns / span)}", f"copies {percent(device.copy_ns / span)}"]
    if device.communication_ns:
        exposed = percent(device.exposed_communication_ns / span)
        parts.append(f"communication {percent(device.communication_ns / span)} ({exposed} exposed)")
    return [f"{', '.join(parts)} of {duration(span / 1000)} from first to last work"]


def _own_time(analysis: Analysis) -> pd.DataFrame:
    """Return layer types by the time of their own kernels, because with its children the root module would have all of
    it."""
    types = analysis.layer_types
    names = [f"{count} × {name}" for count, name in zip(types["layers"], types["type"], strict=True)]
    return types.assign(name=names, share=types["self_busy_ns"] / max(1, analysis.layers["self_busy_ns"].sum()))


def _top(frame: pd.DataFrame) -> str:
    largest = frame.nlargest(_SHOWN, "share")
    pairs = zip(largest["name"], largest["share"], strict=True)
    return ", ".join(f"{shortened(printable(str(name)), 44)} {percent(share)}" for name, share in pairs) or "none"


def _advised(analysis: Analysis) -> int:
    return max(1, min(_SHOWN, len(analysis.recommendations)))


def _advice(analysis: Analysis, rank: int) -> str:
    if not analysis.recommendations:
        return "no recommendation"
    advice = analysis.recommendations[rank]
    gain = speedup(advice.speedup) + " in throughput" * advice.throughput
    needs = f" Needs {advice.condition}." if advice.condition else ""
    return f"{advice.title}: predicted {gain}.{needs} {sentences(advice.reason)}"


def _plan(analysis: Analysis) -> list[str]:
    """Return the steps of the plan with their cumulative speed-ups, if there are at least two."""
    if len(analysis.plan) < 2:
        return []
    steps = [
        f"{in_sentence(step.title)} ({speedup(step.cumulative)} so far)" for step in analysis.plan if step.cumulative
    ]
    more = [
        f"{in_sentence(step.title)} for throughput ({speedup(step.speedup)} more)"
        for step in analysis.plan
        if step.throughput
    ]
    return [", then ".join([*steps, *more])]


def _coverage(analysis: Analysis) -> str:
    shares = analysis.coverage
    return f"op {percent(shares.op)}, layer {percent(shares.layer)}, cost {percent(shares.cost)} of the busy time"


def _problems(analysis: Analysis) -> str:
    if analysis.problems.empty:
        return "none"
    order = analysis.problems["severity"].map(_SEVERITIES.index).sort_values(kind="stable").index
    messages = list(analysis.problems["message"].loc[order])
    more = [f"And {len(messages) - 2} more."] if len(messages) > 2 else []
    return " ".join([*messages[:2], *more])
