"""Makes the baseline of a trace: the op list of a step, fitted to the step's real latency.

A profiler slows the host, so the host times in a trace are scaled until the simulated step takes as long as the step
took without a profiler. What the op list lacks then is host work, or stays as it is.
"""

from bisect import bisect_left

import numpy as np
import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.attribute import analyzed, growing_prefix, loader_of, matching, recurring
from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.predict.batch_size import batch_by_shapes
from tracekit.analyzers.predict.host import MOST_TO_LAUNCH_NS, host_speed, modelled_speed
from tracekit.analyzers.predict.loading import at_workers_pace, longest_without_wait, with_wait_for_workers
from tracekit.analyzers.predict.math_fallback import math_fallback
from tracekit.analyzers.predict.memory import least_memory
from tracekit.analyzers.predict.oplist import listed
from tracekit.analyzers.predict.outside import LOADS, PYTHON, STALL, Outside, calls_share, profiler_share
from tracekit.analyzers.predict.running import running
from tracekit.analyzers.predict.simulation import Reproduction, side_by_side
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.predict.traced_step import overlap, traced_step
from tracekit.analyzers.predict.usual_step import mean_causes, slow_first
from tracekit.analyzers.predict.waiting import launch_latency_ns, queued_gap_ns
from tracekit.analyzers.results import LAUNCHING, OUTSIDE_MODEL, Analysis
from tracekit.analyzers.trace import Trace

STAND_IN = "a100"
"""GPU in whose place an unknown one is simulated: only its launches and its host matter then."""
_SAME = 0.01
"""Relative difference up to which the latency is that of the typical step."""
_AS_LONG = 0.03
"""Relative tolerance of a simulated latency, because kernel times vary as much under a profiler."""
_SLOWED = 1.2
"""Largest factor by which kernels take longer than in the trace, as under a sustained load; the rest of a longer step
is not in the trace."""
_BUSIER = 1.9
"""Largest factor by which the host of one run took longer at another time, in blind rounds."""
_TOLD = 0.9
"""Ratio of the smallest to the largest host time that reproduces a latency, above which the latency determines the
host time."""


def baseline(trace: Trace, analysis: Analysis) -> Baseline | None:
    """Return the calibrated baseline of a trace; None without device work.

    If long stalls lie between typical steps, a typical one gets their mean. What its simulation does not explain stays
    as it is (`Baseline.rest_ns`).
    """
    return _calibrated(recurring(trace, analysis.set_apart), analysis)


def _calibrated(trace: Trace, analysis: Analysis) -> Baseline | None:
    """Return the baseline of the recurring part of a trace."""
    step = traced_step(trace, analysis)
    if step is None:
        return None
    of_step = listed(trace, analysis, step.host_ns)
    ops, outside = of_step.ops, of_step.outside
    gpu = analysis.source.gpu or hardware.find(STAND_IN)
    if not ops.kernel_ns.any():
        return None
    without, causes = analysis.latency.unprofiled, analysis.host_causes
    raw = Baseline(
        ops=ops,
        gpu=gpu,
        gpu_is_known=analysis.source.gpu is not None,
        source=analysis.source,
        stated_ns=without.median_us * 1e3 if without else analysis.latency.profiled_us * 1e3,
        launch_latency_ns=launch_latency_ns(analysis.work, trace.host),
        gap_ns=queued_gap_ns(analysis.work),
        host_range=Interval(1.0, 1.0, 1.0),
        tail=step.tail.less(of_step.outside.tail_ns),
        outside=outside,
        recorded=of_step.recorded,
        host_causes=causes[(causes["step"] == step.number).to_numpy()].reset_index(drop=True),
        graph_use=step.graphs,
        overlaps=step.overlaps,
        entry_ns=min(step.entry_ns, float(ops.host_ns[0])),
        batch_by_shapes=batch_by_shapes(trace.host),
        frees=step.frees,
        growth=growing_prefix(trace.host, trace.device),
        running=running(analysis.work, len(analysis.timeline.steps), measured=analysis.source.kind != "modelled"),
        fallback=math_fallback(trace.host, gpu, analysis.source.capture),
        overlap=overlap(analysis, step, float(ops.kernel_ns.sum())),
        decisions=step.decisions,
        idle_casts=step.idle_casts,
        host_speed=host_speed(analysis.work, trace.host, gpu),
        loader=loader_of(trace.host, analysis.timeline.steps),
    )
    least = least_memory(trace, ops, raw.gpu, training=raw.trains)
    raw = replace(raw, side_by_side=side_by_side(ops, of_step.work, raw.gpu), least_memory=least)
    usual = mean_causes(analysis)
    wall_ns = step.wall_ns if slow_first(analysis) else max(step.wall_ns, analysis.latency.profiled_us * 1e3)
    raw = explained(raw, wall_ns, usual)
    raw = replace(raw, overlaps=step.overlaps or (step.never_waits and not raw.ops.sync.any()))
    if analysis.source.kind == "modelled":
        return modelled(raw)
    launching, python = float(ops.host_ns.sum()), raw.outside.total(PYTHON)
    share = profiler_share(launching, step.recorded, analysis.source.format, python)
    _, calls, _ = calls_share(launching + python, step.recorded)
    if without:
        return explained(timed(raw, share), raw.stated_ns, usual)
    return at_workers_pace(profiled(raw, share, calls))


def start(trace: Trace, gpu: GPU | None = None) -> tuple[Analysis, Baseline | None]:
    """Return the analysis of a trace, and its baseline; None without device work or with an unknown GPU.

    `gpu` is the GPU of the run, used only if the trace does not name it. Raises InputError for a trace without work.
    """
    trace, analysis = analyzed(trace, gpu)
    return analysis, _calibrated(trace, analysis)


def explained(raw: Baseline, wall_ns: float, causes: "pd.Series[float]") -> Baseline:
    """Return the baseline whose simulation takes this time, and the check before that.

    What is missing is host work outside the model that idle time shows (`causes`, by cause) and the op list lacks. If
    the simulated device would hide it, it consists of stalls. Then come launches that take longer in other steps than
    in the typical one: they are host time of the same ops. The rest stays as it is.
    """
    check = Reproduction(raw.latency_ns / 1e3, wall_ns / 1e3)
    raw = raw if raw.as_traced else replace(raw, as_traced=check)
    if check.holds or raw.source.kind == "modelled":
        return raw
    if raw.latency_ns > wall_ns:
        return _faster(raw, wall_ns)
    lacking = {cause: ns - raw.outside.total((str(cause),)) for cause, ns in causes.items() if cause in OUTSIDE_MODEL}
    more = pd.Series({cause: ns for cause, ns in lacking.items() if ns > 0}, dtype=float)
    scale = min(1.0, (wall_ns - raw.latency_ns) / more.sum()) if len(more) else 0.0
    cause, ns = more.index.to_numpy(dtype=object), (more.to_numpy() * scale).astype(np.float64)
    ahead, stalls = (Outside(cause, ns, np.full(len(more), place)) for place in (0.0, STALL))
    hidden = replace(raw, outside=raw.outside.joined(ahead))
    hides = hidden.latency_ns < raw.latency_ns + (1 - _SAME) * ns.sum()
    raw = replace(raw, outside=raw.outside.joined(stalls)) if hides else hidden
    raw = _slower(raw, causes, wall_ns - raw.latency_ns)
    return replace(raw, rest_ns=max(0.0, wall_ns - raw.latency_ns))


def _faster(raw: Baseline, wall_ns: float) -> Baseline:
    """Return the baseline that takes this shorter time on a faster host; kernels keep theirs, if they fit."""

    def at(speed: float, kernels: float = 1.0) -> Baseline:
        ops = raw.ops.assign(host_ns=raw.ops.host_ns * speed, kernel_ns=raw.ops.kernel_ns * kernels)
        return replace(raw, ops=ops, outside=raw.outside.scaled(speed))

    if at(0.0).latency_ns >= wall_ns:
        return at(wall_ns / raw.latency_ns, wall_ns / raw.latency_ns)
    return at(bisect_left(range(1_000), wall_ns, key=lambda part: at(part / 1e3).latency_ns) / 1e3)


def _slower(raw: Baseline, causes: "pd.Series[float]", most_ns: float) -> Baseline:
    """Return the baseline whose launches take as much longer, up to `most_ns`, as the device waits for them in other
    steps."""
    typical = raw.host_causes.groupby("cause")["idle_ns"].sum()
    longer = sum(max(0.0, causes.get(cause, 0.0) - typical.get(cause, 0.0)) for cause in LAUNCHING)
    launches = float(raw.ops.host_ns.sum())
    return _scaled(raw, 1 + min(longer, max(most_ns, 0.0)) / launches) if launches else raw


def modelled(raw: Baseline) -> Baseline:
    """Return the baseline with the range by which the modelled run's host may differ from the assumed host."""
    capture = raw.source.capture
    if capture is None or not capture.host_op_low_us:
        host = raw.gpu.host_op_us
    else:
        host = Interval(capture.host_op_low_us, capture.host_op_us, capture.host_op_high_us)
    host_range = Interval(host.low / host.expected, 1.0, host.high / host.expected)
    return replace(raw, host_range=host_range, host_speed=modelled_speed(host))


def profiled(raw: Baseline, share: Interval, calls: float = 0.0) -> Baseline:
    """Return the baseline with unprofiled host time, limited to what fits the step, as a launch into a full queue
    waits. `calls` is the part of Python's time in which its calls were recorded."""
    most = _largest_host_factor(raw)
    low, expected, high = (min(1 - part, most) for part in (share.high, share.expected, share.low))
    open_range = Interval(low / expected, 1.0, high / expected) if expected else Interval(1.0, 1.0, 1.0)
    raw = replace(raw, outside=_without_loading(raw).outside.unrecorded(calls))
    return replace(_scaled(raw, expected), host_range=open_range, profiler_share=share)


def _without_loading(raw: Baseline) -> Baseline:
    """Return the baseline without what the host took to load kernels, which a process does once."""
    setup = raw.host_causes[raw.host_causes["cause"] == "setup"]
    idle = float(setup["idle_ns"][matching(setup["name"], LOADS)].sum())
    return replace(raw, outside=raw.outside.without_loading(idle))


def timed(raw: Baseline, share: Interval) -> Baseline:
    """Scale host time to the unprofiled latency, and kernel time too if the kernels alone exceed it.

    If a step waits for its kernels, its latency is the same for all host times below some bound, so a profiler's usual
    share is subtracted. On an H200's host, 0.32 to 0.50 (median 0.42) of the traced host time remained in fifteen
    host-bound steps. If the remaining time exceeds typical launch times on such machines, both are estimates, and their
    geometric mean is used.
    """
    raw = _fitting(_without_loading(raw), share)
    floor = raw.simulate(raw.ops, 0.0)
    most = _largest_host_factor(raw, max(1.0, (1 + _AS_LONG) * floor / raw.stated_ns))
    reached = min(1.0, raw.simulate(raw.ops, most) / raw.stated_ns)  # less where the device sets the pace
    least = _largest_host_factor(raw, (1 - _AS_LONG) * reached)
    open_to_less = least < _TOLD * most
    usual = 1 - share.expected
    if raw.source.capture:
        usual *= min(1.0, _machine_factor(raw) / usual) ** 0.5
    expected = min(max(usual, least), most) if open_to_less else most
    low, high = max(least, min(1 - share.high, expected)), max(min(1 - share.low, most), expected)
    open_range = Interval(low / expected, 1.0, high / expected) if expected else raw.host_range
    speed = raw.host_speed.drifted(expected / (1 - share.expected))
    return replace(_scaled(raw, expected), host_range=open_range, host_speed=speed)


def _fitting(raw: Baseline, share: Interval) -> Baseline:
    """Return the baseline whose device and whose work outside the model take as long as the latency tells.

    A step that waits for its kernels, at the usual factor on host times, tells how long these take. In any other one,
    the host's work outside the model takes as much longer or shorter than recorded as launches do than usual: part of
    the recorded time is the profiler's, and other processes slow both. What nothing explains in the trace is limited to
    what fits beside that. But workers of a data loader have batches ready when a recording begins: what the latency has
    more than `longest_without_wait` explains is the wait for them.
    """
    usual = 1 - share.expected
    needed = raw.simulate(raw.ops, usual) - raw.rest_ns
    if raw.loader.workers and raw.stated_ns > longest_without_wait(raw, share, _BUSIER):
        return with_wait_for_workers(raw, raw.stated_ns - needed)
    raw = replace(raw, rest_ns=float(np.clip(raw.stated_ns - needed, 0.0, raw.rest_ns)))
    device = replace(raw, outside=Outside()).simulate(raw.ops, 0.0)
    if device > raw.stated_ns or needed <= (1 + _AS_LONG) * (device - raw.rest_ns):
        slowed = raw.stated_ns / max(device if device > raw.stated_ns else needed, 1.0)
        raw = replace(raw, ops=raw.ops.assign(kernel_ns=raw.ops.kernel_ns * min(slowed, _SLOWED)))
        if slowed <= _SLOWED:  # the latency does not tell what the device hides
            return raw
    return replace(raw, outside=raw.outside.scaled(_told(raw, usual))) if raw.outside.total() else raw


def _told(raw: Baseline, usual: float) -> float:
    """Return the factor on work outside the model, and on the usual time of launches, that reproduces the latency."""
    low, high = 0.0, max(2.0, 2 * raw.stated_ns / raw.outside.total())
    for _ in range(30):
        middle = (low + high) / 2
        longer = replace(raw, outside=raw.outside.scaled(middle)).simulate(raw.ops, usual * middle) > raw.stated_ns
        low, high = (low, middle) if longer else (middle, high)
    return low


def _machine_factor(raw: Baseline) -> float:
    """Return the factor on host time that gives the launch times of machines with this GPU."""
    launching = float(np.minimum(raw.ops.host_ns, MOST_TO_LAUNCH_NS).sum())
    return len(raw.ops) * raw.gpu.host_op_us.expected * 1e3 / launching if launching else 1.0


def _scaled(raw: Baseline, factor: float) -> Baseline:
    ops, tail = raw.ops.assign(host_ns=raw.ops.host_ns * factor), raw.tail and raw.tail.scaled(factor)
    return replace(raw, ops=ops, recorded=raw.recorded.scaled(factor), entry_ns=raw.entry_ns * factor, tail=tail)


def _largest_host_factor(raw: Baseline, part: float = 1.0) -> float:
    """Return the largest factor on host time whose simulated latency is at most `part` of the stated one: up to 1, or
    to how much longer than in the trace the step is told to be. Uses bisection."""
    low, high = 0.0, float(np.clip(raw.stated_ns / max(raw.latency_ns, 1.0), 1.0, _BUSIER))
    if raw.simulate(raw.ops, high) <= raw.stated_ns * part:
        return high
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if raw.simulate(raw.ops, middle) <= raw.stated_ns * part else (low, middle)
    return low
