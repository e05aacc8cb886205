"""An analysis in a terminal: a summary of ten lines, and everything as tables."""

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.analyzers.results import Analysis
from tracekit.reports.console import printed
from tracekit.reports.headline import headline
from tracekit.reports.names import in_sentence, printable, shortened
from tracekit.reports.numbers import duration, percent, speedup
from tracekit.reports.sentences import sentences
from tracekit.reports.terminal_summary import head
from tracekit.reports.terminal_tables import tables

_KIND = {
    "measured": "measured",
    "modelled": "MODELLED: every number is a prediction, nothing was measured",
    "imported": "imported",
}
_SHOWN = 3
_NOTABLE = 0.01
_INDENT = 12


def summary(analysis: Analysis) -> str:
    """About ten lines of plain text."""
    lines = _lines(analysis)
    advice = [("next" if rank == 0 else "", _advice(analysis, rank)) for rank in range(_advised(analysis))]
    lines[-2:-2] = advice
    return "\n".join(
        printable(text) if not label and not rank else f"  {label:<{_INDENT - 2}}{printable(text)}"
        for rank, (label, text) in enumerate(lines)
    )


def brief(analysis: Analysis, *, width: int | None = None, colour: bool | None = None) -> str:
    """The summary with the bound and the recommendations drawn, as wide as `width` (of the terminal, by default).

    Colour, unless said, when standard output is a terminal and NO_COLOR is not set.
    """
    return printed(lambda columns: head(analysis, _lines(analysis), columns), width=width, colour=colour)


def full(analysis: Analysis, *, width: int | None = None, colour: bool | None = None) -> str:
    """The summary that `brief` returns, followed by every table."""

    def render(columns: int) -> RenderableType:
        shown = [part for table in tables(analysis, columns) for part in (Text(), table)]
        return Group(head(analysis, _lines(analysis), columns), *shown)

    return printed(render, width=width, colour=colour)


def _lines(analysis: Analysis) -> list[tuple[str, str]]:
    """Label and text; the headline first."""
    lines = [
        ("", headline(analysis)),
        ("source", _source(analysis)),
        ("step", _latency(analysis)),
        ("bound", _bounds(analysis)),
        *(("devices", text) for text in _devices(analysis)),
        ("layers", _top(_own_time(analysis))),
        ("kernels", _top(analysis.kernels)),
        *(("plan", text) for text in _plan(analysis)),
        ("coverage", _coverage(analysis)),
        ("problems", _problems(analysis)),
    ]
    if analysis.projection:
        lines.insert(3, ("projected", _projection(analysis)))
    return lines


def _source(analysis: Analysis) -> str:
    source = analysis.source
    name = source.gpu.name if source.gpu and source.kind == "modelled" else source.device_name
    return ", ".join(
        part for part in (_KIND[source.kind], name or source.device, source.precision, source.format) if part
    )


def _latency(analysis: Analysis) -> str:
    timed, profiled = analysis.latency.unprofiled, f"{duration(analysis.latency.profiled_us)} in the trace"
    spread = f"{duration(timed.median_us)} ({duration(timed.p10_us)} to {duration(timed.p90_us)})" if timed else ""
    if timed and analysis.source.kind == "modelled":
        parts = [f"MODELLED {spread}"]
    else:
        parts = [f"unprofiled {spread}", profiled] if timed else [profiled]
    busy, device = analysis.busy_share, "GPU" if analysis.source.device == "gpu" else "CPU"
    return "; ".join([*parts, f"{device} busy {percent(busy)}, idle {percent(1 - busy)}"])


def _projection(analysis: Analysis) -> str:
    projection = analysis.projection
    if projection is None:
        return ""
    low, high = duration(projection.latency_us.low), duration(projection.latency_us.high)
    return f"{low} to {high} a step on {projection.gpu.name} (MODELLED from this run)"


def _bounds(analysis: Analysis) -> str:
    shares = ", ".join(f"{name} {percent(share)}" for name, share in analysis.bound.ranked() if share > 0)
    return f"undetermined; under the profiler {shares}" if analysis.undetermined else shares


def _devices(analysis: Analysis) -> list[str]:
    """What the devices did, where they did more than compute."""
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
    """Types of layers by the time of their own kernels, which tells more than that the model holds everything."""
    types = analysis.layer_types
    names = [f"{count} × {name}" for count, name in zip(types["layers"], types["type"], strict=True)]
    return types.assign(name=names, share=types["self_busy_ns"] / max(1, analysis.timeline.busy_ns))


def _top(frame: pd.DataFrame) -> str:
    largest = frame.nlargest(_SHOWN, "share")
    shown = zip(largest["name"], largest["share"], strict=True)
    return ", ".join(f"{shortened(printable(str(name)), 44)} {percent(share)}" for name, share in shown) or "none"


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
    """Steps together, if there are several: what each adds."""
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
    messages = list(analysis.problems["message"])
    more = [f"and {len(messages) - 2} more"] if len(messages) > 2 else []
    return " ".join([*messages[:2], *more])
