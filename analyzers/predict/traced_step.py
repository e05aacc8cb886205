"""The traced step: its duration, host time after its last launch, and the rows recorded on the host."""

import re

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.attribute import is_copy_to_host, matching, one_of
from tracekit.analyzers.predict.called import idle_casts
from tracekit.analyzers.predict.running import COMPILED_REGION, GraphUse, graph_use
from tracekit.analyzers.predict.usual_step import typical_step
from tracekit.analyzers.predict.waiting import blocking_copies, frees_memory, waiting_calls
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import Trace

_WAITS_FOR_ALL = re.compile(r"DeviceSynchronize")
_REGION = re.compile(f"^{COMPILED_REGION}")


class HostTail(msgspec.Struct, frozen=True):
    """Host time in nanoseconds after the last launch: before the wait for the device, and after it."""

    before_ns: float = 0.0
    after_ns: float = 0.0
    waits: bool = False
    for_all: bool = False
    """Whether every step asks to wait for all work: `torch.cuda.synchronize()`."""
    asks_nothing: bool = False
    """Whether every step ends in such a wait, and nothing is read back."""

    def scaled(self, factor: float) -> "HostTail":
        return replace(self, before_ns=self.before_ns * factor, after_ns=self.after_ns * factor)

    def less(self, ns: float) -> "HostTail":
        """Return a copy with `ns` less time, subtracted first from the time after the wait."""
        after = max(self.after_ns - ns, 0.0)
        return replace(self, before_ns=max(self.before_ns - (ns - self.after_ns + after), 0.0), after_ns=after)


class TracedStep(msgspec.Struct, frozen=True):
    number: int
    wall_ns: int
    """Time from its start on the host to the end of its device work; if steps overlap, their period."""
    host_ns: int
    """Time in which the host issued it: its wall time; if steps overlap, until the host began the next step."""
    overlaps: bool
    """Whether the next step begins before the step's device work ends."""
    never_waits: bool
    """Whether no step before the last waits for the device. Without a profiler, such a host runs ahead."""
    tail: HostTail
    recorded: dict[str, int]
    """Category of host rows (op, runtime, range, module) -> number of rows in the step. Also python_calls, estimated
    from the step's part of the other rows, graph_nodes, the number of work items that graphs launched, and shapes, the
    number of rows with shapes. If several hosts launch side by side, the mean of these."""
    busy_ns: int
    """Busy time of all devices."""
    graphs: GraphUse
    decisions: int
    """Number of branches for which Python read a tensor in the host's memory."""
    idle_casts: tuple[int, ...]
    """Number of elements of each tensor that was cast to fp32 although it was in fp32 already, by its recorded
    shape."""
    frees: int = 0
    """Number of calls by which the driver frees device memory; PyTorch's allocator makes none unless it is asked to."""
    entry_ns: int = 0
    """Host time from entering compiled code to its first launch, if that is the step's first launch."""


def traced_step(trace: Trace, analysis: Analysis) -> TracedStep | None:
    """Return the step with the median wall time among steps with device work; None if there is none."""
    step = typical_step(analysis)
    if step is None:
        return None
    start, wall = int(step.host_start_ns), int(step.wall_ns)
    overlaps = int(step.start_ns) > start
    issued = _time_until_next(analysis.timeline.steps, start, wall) if overlaps else wall
    times = trace.host.start_ns.to_numpy()
    host = trace.host[(times >= start) & (times < start + issued)]
    work = analysis.work[(analysis.work.step == step.step) & (analysis.work.launch >= 0)]
    launches = work.launch
    recorded = {str(name): int(rows) for name, rows in host.category.value_counts().items() if rows}
    recorded["python_calls"] = round(trace.metadata.python_calls * len(host) / max(1, len(trace.host)))
    recorded["graph_nodes"] = int((work.graph >= 0).sum())
    recorded["shapes"] = int((host.shapes != "").sum())
    beside = _hosts_side_by_side(trace.host.thread.to_numpy()[launches], work.device)
    recorded = {name: rows // beside for name, rows in recorded.items()}
    tail = _tail(trace, host, work, start + issued)
    if overlaps:  # what waits is the end of the recording
        tail = HostTail(before_ns=tail.before_ns)
    for_all = tail.waits and _waits_for_all(trace.host, analysis.timeline.steps)
    reads = bool(is_copy_to_host(work.name)[int(work.start_ns.argmax())]) if for_all else False
    tail = replace(tail, for_all=for_all, asks_nothing=for_all and not reads)
    entry = _entry_ns(host, trace.host.start_ns.to_numpy()[launches]) if len(launches) else 0
    return TracedStep(
        number=int(step.step),
        wall_ns=wall,
        host_ns=issued,
        overlaps=overlaps,
        never_waits=_never_waits(trace.host, analysis),
        tail=tail,
        recorded=recorded,
        busy_ns=int(step.busy_ns),
        graphs=graph_use(host),
        decisions=decisions(host),
        idle_casts=idle_casts(host),
        frees=_recurring_frees(host, trace.host, analysis.timeline.steps),
        entry_ns=entry,
    )


_MOSTLY = 0.5


def _recurring_frees(host: pd.DataFrame, every: pd.DataFrame, steps: pd.DataFrame) -> int:
    """Return the number of frees in a step (rows of `host`), if most steps free memory; 0 if they do not.

    CUDA also frees memory when it initializes itself: a single step does not tell.
    """
    frees = every.start_ns[(every.category == "runtime").to_numpy() & frees_memory(every.name)].to_numpy()
    begins = np.append(np.sort(steps.host_start_ns.to_numpy()), np.iinfo(np.int64).max)
    in_each = np.diff(np.searchsorted(np.sort(frees), begins)) > 0
    recurs = len(in_each) > 1 and in_each.mean() > _MOSTLY
    return int(np.isin(frees, host.start_ns.to_numpy()).sum()) if recurs else 0


def _hosts_side_by_side(thread: npt.NDArray[np.int64], device: "pd.Series[int]") -> int:
    """Return the number of devices if each has launching threads of its own, as the ranks in one recording have; else
    1."""
    devices = device.groupby(thread).nunique()
    return device.nunique() if len(devices) and (devices == 1).all() else 1


def _entry_ns(host: pd.DataFrame, launched: npt.NDArray[np.int64]) -> int:
    """Return the time from entering the compiled region around the first launch until that launch; 0 without one."""
    regions = host[(host.category == "op") & matching(host.name, _REGION)]
    first = launched.min()
    around = regions[(regions.start_ns <= first) & (regions.start_ns + regions.duration_ns >= first)]
    return int(first - around.start_ns.min()) if len(around) else 0


def decisions(host: pd.DataFrame) -> int:
    """Return the number of tensors in the host's memory on which Python branched (`if tensor:`).

    Converting them to a bool makes no call of the device's runtime.
    """
    reads = host[one_of(host.name, ("aten::is_nonzero",))]
    calls = np.sort(host.start_ns[one_of(host.category, ("runtime",))].to_numpy())
    ends = (reads.start_ns + reads.duration_ns).to_numpy()
    return int((np.searchsorted(calls, reads.start_ns.to_numpy()) == np.searchsorted(calls, ends)).sum())


def _time_until_next(steps: pd.DataFrame, start: int, wall: int) -> int:
    """Return the time from `start` until the host began the next step.

    For the last step it is the usual time, at most the step's wall time; for a single step, its wall time.
    """
    starts = steps.host_start_ns.to_numpy()
    later = starts[starts > start]
    if len(starts) < 2:
        return wall
    return int(later[0]) - start if len(later) else min(wall, int(np.median(np.diff(starts))))


def _tail(trace: Trace, host: pd.DataFrame, work: pd.DataFrame, stop: int) -> HostTail:
    """Return the host time after the last launch, on the threads that launch; zero if the trace contains no launch.

    Once a call has returned after all work of the step ended, the host waits no more: later calls are host time.
    """
    launches = trace.host.iloc[work.launch.unique()]
    if launches.empty:
        return HostTail()
    copying = work.launch[blocking_copies(trace.host, work)]
    last = int(_launched_until(launches, copying).max())
    calls = waiting_calls(host, launches.thread.unique(), 0, stop, copying)
    calls = calls[calls.start_ns + calls.duration_ns >= last]
    if calls.empty:
        return HostTail(before_ns=max(stop - last, 0))
    calls = calls[: _first_to_see_the_end(calls, work) + 1]
    first_wait, waited_until = int(calls.start_ns.min()), int((calls.start_ns + calls.duration_ns).max())
    between = waited_until - max(first_wait, last) - int(calls.duration_ns.sum())
    return HostTail(max(first_wait - last, 0) + max(between, 0), max(stop - waited_until, 0), waits=True)


def _never_waits(host: pd.DataFrame, analysis: Analysis) -> bool:
    """Return whether the threads that launch wait for the device in no step but the last, of at least two."""
    begins, work = analysis.timeline.steps.host_start_ns, analysis.work[analysis.work.launch >= 0]
    if len(begins) < 2:
        return False
    threads = host.thread.iloc[work.launch.unique()].unique()
    copying = work.launch[blocking_copies(host, work)]
    return waiting_calls(host, threads, int(begins.min()), int(begins.max()), copying).empty


def _waits_for_all(host: pd.DataFrame, steps: pd.DataFrame) -> bool:
    """Return whether the steps, except perhaps the last, each ask to wait for all work.

    Profilers and benchmarks wait once, after the last step.
    """
    begins = np.sort(steps.host_start_ns.to_numpy())
    calls = host[(host.category == "runtime").to_numpy() & matching(host.name, _WAITS_FOR_ALL)]
    times = np.sort(calls.start_ns.to_numpy())
    in_each = np.diff(np.searchsorted(times, begins)) > 0
    return len(begins) > 1 and bool(in_each.all())


def _launched_until(launches: pd.DataFrame, copying: "pd.Series[int]") -> "pd.Series[int]":
    """Return the time at which each call had launched its work: its end, or its start if it waits for its copy."""
    return launches.start_ns + launches.duration_ns.where(~launches.index.isin(copying), 0)


def _first_to_see_the_end(calls: pd.DataFrame, work: pd.DataFrame) -> int:
    """Return the position of the first call that returned after all work had ended; that of the last call if none
    did."""
    after = (calls.start_ns + calls.duration_ns >= (work.start_ns + work.duration_ns).max()).to_numpy()
    return int(after.argmax()) if after.any() else len(after) - 1


def overlap(analysis: Analysis, step: TracedStep, kernel_ns: float) -> float:
    """Return the busy time of a step divided by its summed kernel time; over all steps if a step was also timed
    unprofiled."""
    steps = analysis.timeline.steps
    busy = float(steps.busy_ns.mean()) if analysis.latency.unprofiled else float(step.busy_ns)
    return busy / max(1, analysis.work.device.nunique()) / kernel_ns
