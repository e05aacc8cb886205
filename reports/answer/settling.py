"""Names the one measurement that narrows a wide prediction most, by what makes it wide."""

from tracekit.analyzers.results import HOST_AND_GAPS, LAUNCHING, NOT_SIMULATED, PROFILER, Analysis, PlanStep
from tracekit.reports.words import device, with_article

_MOSTLY = 0.5
_HOST = (HOST_AND_GAPS, PROFILER, NOT_SIMULATED)


def settled_by(analysis: Analysis, last: PlanStep) -> str:
    """Return the command of the measurement that narrows the gain of the plan up to its step `last` most.

    If launches are saved, the host is unknown: how long a step takes without the profiler or, of a modelled run, how
    fast the GPU's machine is. If time of kernels is saved, their shapes are unknown if the trace has none. Otherwise it
    is what the work takes after the change, which a trial tells.
    """
    timed = analysis.predicted_from.timed if analysis.predicted_from else "unprofiled"
    waits, there = _saves_waiting(last), f"on {with_article(device(analysis.source))}"
    if timed != "unprofiled" and waits and _waits_for_launches(analysis):
        return f"tracekit calibrate {there}" if timed == "modelled" else "tracekit analyze TRACE --latency-ms MS"
    if timed == "profiled" and not waits and (analysis.problems["code"] == "no-shapes").any():
        return "record with record_shapes=True"
    if analysis.source.capture is None:
        is_binary = analysis.source.program and not analysis.source.program.endswith(".py")
        return "tracekit compare TRACE AFTER" if is_binary else "tracekit run SCRIPT"
    return f"tracekit verify RUN {there}" if timed == "modelled" else "tracekit verify RUN"


def _saves_waiting(last: PlanStep) -> bool:
    """Return whether most of the time that is saved by the plan up to its step `last` is the host's."""
    times = last.explained.by_op_class if last.explained else ()
    saved = {each.op_class: max(each.before_ns - each.after_ns, 0) for each in times}
    return sum(saved.get(name, 0) for name in _HOST) >= _MOSTLY * max(sum(saved.values()), 1)


def _waits_for_launches(analysis: Analysis) -> bool:
    causes = analysis.idle_causes
    return bool(causes["share"][causes["cause"].isin(LAUNCHING).to_numpy()].sum() >= _MOSTLY)
