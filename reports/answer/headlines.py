"""Writes one sentence that states the bound of the run and recommends the next step."""

from tracekit.analyzers.predict import MOST_QUOTED
from tracekit.analyzers.results import Analysis, Check, MemoryFit, Recommendation
from tracekit.reports.answer.measured import measured_gains, of_advice
from tracekit.reports.words import (
    device,
    duration,
    helpless,
    in_sentence,
    measured,
    model,
    percent,
    printable,
    shortened,
    speedup,
    times,
    with_article,
)

_SAYING = {
    "compute": "is compute-bound {share} of the time",
    "memory": "is memory-bound {share} of the time",
    "launch": "waits for the host {share} of the time",
    "latency": "spends {share} of the time in kernels too small to fill the GPU",
    "transfer": "spends {share} of the time moving data",
    "unknown": "spends {share} of the time in kernels whose bound is unknown",
}
_IDLE = "leaves the GPU idle {share} of the time"
_WRAPPERS = (
    "OptimizedModule",
    "CompiledFxGraph",
    "compiled region",
    "DistributedDataParallel",
    "FullyShardedDataParallel",
    "DataParallel",
)
_DOMINANT = 0.4
_NARROWED_BY = {
    "unprofiled": "`tracekit verify RUN --apply {id}` measures it",
    "profiled": "a step timed without the profiler narrows this range (`tracekit run SCRIPT`, or `--latency-ms`)",
    "modelled": "`tracekit calibrate` on that machine narrows this range",
}
"""Way to narrow a prediction's interval, by the evidence for the step that it starts from."""
_HOPEFUL = 1.1
"""Smallest expected speed-up for which an uncertain optimization is mentioned."""


def headline(analysis: Analysis) -> str:
    """Return, for example, "GPT-2 decode on an H200 waits for the host 87 % of the time: try CUDA graphs, ..."."""
    if analysis.memory_fit:
        there = analysis.projection.gpu.name if analysis.projection else ""
        return printable(f"{_subject(analysis)} {of_fit(analysis.memory_fit, there)}.")
    return printable(f"{_subject(analysis)} {_state(analysis)}{_next_step(analysis)}.")


def of_fit(fit: MemoryFit, there: str = "") -> str:
    """Return, for example, "does not fit: 56.4 of 16 GB; batch 2 is the largest; it fits with weights in int4".

    `there` names the GPU, if it is not that of the run.
    """
    gpu, least = with_article(there) if there else "", "at least " * fit.at_least
    needed = f"{least}{fit.needed_bytes / 1e9:,.1f} of {fit.available_bytes / 1e9:,.0f} GB"
    parts = [" ".join(part for part in ("does not fit", gpu) if part) + f": {needed}"]
    if fit.largest_batch is not None:
        largest = f"batch {fit.largest_batch:,} is the largest" + " at best" * fit.at_least
        parts.append(largest if fit.largest_batch else "no batch fits")
    others = [remedy for remedy in fit.fitting if not remedy.name.startswith("batching:")]
    if others:
        parts.append(f"it {'may fit' if fit.at_least else 'fits'} with {in_sentence(others[0].title)}")
    elif not fit.fitting:
        parts.append("nothing that tracekit knows makes it fit one GPU")
    return "; ".join(parts)


def _subject(analysis: Analysis) -> str:
    source = analysis.source
    capture = source.capture
    captured = " ".join(part for part in (model(capture.model), capture.workload) if part) if capture else ""
    what = captured or _root(analysis)
    where = device(source)
    if source.kind == "modelled":
        return f"{what or 'This run'}, modelled for {with_article(where)},"
    return (what or "This run") + (f" on {with_article(where)}" if where else "")


def _root(analysis: Analysis) -> str:
    """Return the class of the whole model, without wrappers of torch; "" if the trace does not have exactly one."""
    layers = analysis.layers[analysis.layers["type"] != ""]
    inside = layers["depth"] == 0
    while inside.sum() == 1 and layers["type"][inside].iloc[0] in _WRAPPERS:
        inside = layers["parent"] == layers.index[inside][0]
    return shortened(str(layers["type"][inside].iloc[0]), 40) if inside.sum() == 1 else ""


def main_bound(analysis: Analysis) -> str:
    """Return the bound that the headline names; "mixed": none is large enough; "undetermined": unknown."""
    if analysis.undetermined:
        return "undetermined"
    main, share = analysis.bound.ranked()[0]
    return main if share >= _DOMINANT else "mixed"


def _state(analysis: Analysis) -> str:
    if analysis.source.device == "cpu":
        return _largest_op(analysis)
    bound, shares = main_bound(analysis), analysis.bound.ranked()
    if bound == "undetermined":
        return "has an undetermined bound"
    if bound == "mixed":
        return "has no single bound (" + ", ".join(f"{name} {percent(share)}" for name, share in shares[:3]) + ")"
    saying = _IDLE if bound == "launch" and _without_host(analysis) else _SAYING[bound]
    return saying.format(share=percent(shares[0][1])) + _as_recorded(analysis, *shares[0])


def _without_host(analysis: Analysis) -> bool:
    """Return whether the trace has no event of the host, so that nothing tells why the GPU is idle."""
    return bool(analysis.problems["code"].isin(["no-host-events"]).any())


def _as_recorded(analysis: Analysis, bound: str, share: float) -> str:
    """Return the same share under the profiler, if the profiler's time was removed by an estimate."""
    start = analysis.predicted_from
    if start is None or start.timed != "profiled":
        return ""
    idle = analysis.recorded_idle_share
    recorded = idle if bound == "launch" else share * (1 - idle) / max(1 - start.idle_share, 1e-9)
    return f" ({percent(recorded)} under the profiler)" if percent(recorded) != percent(share) else ""


def _largest_op(analysis: Analysis) -> str:
    if analysis.ops.empty:
        return "contains no op"
    top = analysis.ops.nlargest(1, "share").iloc[0]
    return f"spends {percent(top['share'])} of its op time in {shortened(str(top['name']), 60)}"


def _next_step(analysis: Analysis) -> str:
    if analysis.recommendations:
        first = analysis.recommendations[0]
        needs = f" (needs {first.condition})" if first.condition else ""
        return f": try {in_sentence(first.title)}{needs}, {_predicted(analysis, first)}{_measured(analysis, first.id)}"
    if analysis.predicted_from and analysis.predicted_from.failed:
        return _not_predicted(analysis.predicted_from.failed)
    if analysis.considered:
        return _perhaps(analysis) or f"; {helpless(analysis)}"
    return ""


def _predicted(analysis: Analysis, first: Recommendation) -> str:
    """Return the interval; if it is too wide to be useful, its lower end and how to narrow it."""
    gain, what = first.speedup, " in throughput" * first.throughput
    if gain.high <= MOST_QUOTED * gain.low:
        return f"predicted {speedup(gain)}{what}"
    timed = analysis.predicted_from.timed if analysis.predicted_from else "unprofiled"
    gain_text = (
        f"at least {times(gain.low, gain.low)}" if gain.low > 1 else f"about {times(gain.expected, gain.expected)}"
    )
    return f"predicted {gain_text}{what}; {_NARROWED_BY[timed].format(id=first.id)}"


def _not_predicted(failed: Check) -> str:
    steps = f"{duration(failed.simulated_us)} instead of {duration(failed.stated_us)}"
    return f": its simulated step takes {steps}, so no gain is predicted; mark steps and time one without the profiler"


def _perhaps(analysis: Analysis) -> str:
    """Return the optimization with the largest expected speed-up among those that may help but are uncertain."""
    rejected = [each for each in analysis.considered if not each.recommended]
    hopeful = [each for each in rejected if each.speedup and each.speedup.expected >= _HOPEFUL]
    best = max(hopeful, key=lambda each: each.speedup.expected if each.speedup else 0.0, default=None)
    if best is None or best.speedup is None:
        return ""
    quoted = f" ({speedup(best.speedup)})" if best.speedup.high <= MOST_QUOTED * best.speedup.low else ""
    return f"; nothing is sure to help, {in_sentence(best.title)} may{quoted}"


def _measured(analysis: Analysis, optimization: str) -> str:
    gain = of_advice(measured_gains(analysis), optimization)
    return f", measured {measured(gain.measured)}" if gain and gain.measured else ""
