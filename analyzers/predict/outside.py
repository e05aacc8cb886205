"""Host work outside the model, which no optimization of the model's ops removes, and its place in a step."""

import re
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.attribute import LONG_GAP_NS, Launching, host_activity, matching
from tracekit.analyzers.core import Bools, Floats, Interval, Ints, intervals, numbers
from tracekit.analyzers.predict.op_columns import Objects, OpList
from tracekit.analyzers.results import OUTSIDE_MODEL

_INTERVALS = intervals(__file__)
_NUMBERS = numbers(__file__)
VARIES = _NUMBERS["varies"]
"""Exponent of the variation over time of host work outside the model, relative to that of launches."""
PAUSES = _NUMBERS["pauses"]
"""Largest fraction of a step in which a profiler pauses without a trace of it."""
TAIL = 1.0
"""Place of host work after the last launch."""
PYTHON = ("data-loading", "preprocessing", "python")
"""Causes of host work in which Python runs."""
STALL = -1.0
"""Place of host work during which the device is idle, wherever it is: stalls between steps that are longer than what is
queued. Each step has its part of them."""


def _none() -> npt.NDArray:
    return np.zeros(0)


class Outside(msgspec.Struct, frozen=True, eq=False):
    """Host work in nanoseconds by cause (one of OUTSIDE_MODEL) and place. The place is the fraction of the step's ops
    that are launched before it, 0 to 1, or STALL; it stays the same when ops change."""

    cause: npt.NDArray[np.object_] = msgspec.field(default_factory=_none)
    ns: Floats = msgspec.field(default_factory=_none)
    place: Floats = msgspec.field(default_factory=_none)
    recorded: float = 0.0
    """Number of ops of PyTorch that were recorded in this work."""
    loading: float = 0.0
    """Nanoseconds of setup in which the host loads kernels, which a process does once for each."""

    def total(self, causes: Iterable[str] = OUTSIDE_MODEL) -> float:
        """Return the time of these causes."""
        return float(self.ns[self._of(causes)].sum())

    def _of(self, causes: Iterable[str]) -> Bools:
        named = frozenset(causes)
        return np.array([cause in named for cause in self.cause.tolist()], dtype=bool)

    def joined(self, other: "Outside") -> "Outside":
        """Return the work of both."""
        if not len(other.ns):
            return self
        return replace(
            self,
            cause=np.concatenate([self.cause, other.cause]),
            ns=np.concatenate([self.ns, other.ns]),
            place=np.concatenate([self.place, other.place]),
        )

    def unrecorded(self, calls_share: float = 0.0) -> "Outside":
        """Return the work without the time in which a profiler recorded its ops and, in code of Python, a share of it,
        0 to 1, in which calls were recorded."""
        named = [cause for cause in OUTSIDE_MODEL if cause != "unexplained"]
        ops = min(RECORDED_OP_US * 1e3 * self.recorded / max(self.total(named), 1.0), _MOST_OF_OTHERS)
        code = self.scaled(1 - min(ops + calls_share, _MOST_OF_OTHERS), PYTHON)
        return code.scaled(1 - ops, [cause for cause in named if cause not in PYTHON])

    def without_loading(self, idle_ns: float = 0.0) -> "Outside":
        """Return the work without the loading of kernels, in `idle_ns` of which the device was idle."""
        loading = max(self.loading, idle_ns) / max(self.total(("setup",)), 1.0)
        return replace(self.scaled(1 - min(1.0, loading), ("setup",)), loading=0.0)

    @property
    def tail_ns(self) -> float:
        """Time after the last launch."""
        return float(self.ns[self.place >= TAIL].sum())

    def stalled_ns(self, host_factor: float = 1.0) -> float:
        """Return the time of stalls, which no device work hides, on a host as in `before_each`."""
        return float(self.ns[self.place == STALL].sum() * host_factor**VARIES)

    def scaled(
        self, factor: float, causes: Iterable[str] = OUTSIDE_MODEL, after: float = -np.inf, until: float = np.inf
    ) -> "Outside":
        """Return a copy in which the time of these causes, at places after one until another, is multiplied by
        `factor`."""
        if factor == 1.0:
            return self
        chosen = self._of(causes) & (self.place > after) & (self.place <= until)
        return replace(self, ns=np.where(chosen, self.ns * factor, self.ns))

    def grown(self, work: float, exponent: float) -> "Outside":
        """Return a copy for a step with `work` times the work. Unexplained time grows with this power of the work."""
        explained = [cause for cause in OUTSIDE_MODEL if cause != "unexplained"]
        return self.scaled(work, explained).scaled(work**exponent, ("unexplained",))

    def before_each(self, ops: int, host_factor: float = 1.0) -> Floats:
        """Return the time before each of `ops` ops, and last the time after all of them, on a host that takes
        `host_factor` times as long for launches."""
        times, place = np.zeros(ops + 1), np.maximum(self.place, 0.0)
        rows = np.where(place >= TAIL, ops, np.minimum(place * ops + 0.5, ops - 1)).astype(np.int64)
        np.add.at(times, rows, np.where(self.place == STALL, 0.0, self.ns * host_factor**VARIES))
        return times

    def after_each(self, ops: int, causes: Iterable[str]) -> Floats:
        """Return the time of these causes after each of `ops` ops."""
        only = self.scaled(0.0, set(OUTSIDE_MODEL) - set(causes))
        return np.cumsum(only.before_each(ops)[::-1])[-2::-1]


class BeforeOps(msgspec.Struct, frozen=True, eq=False):
    """Host time before each op, in nanoseconds, that is not spent launching. The sum is at most the op's host time."""

    outside: Floats
    """Work outside the model."""
    planning: Floats
    """Time in which the op plans its kernel."""
    recording: Floats
    """Time in which graphs are recorded."""


def outside_work(
    host: pd.DataFrame, by: Launching, launched: Ints, start: int, stop: int, host_ns: Floats
) -> tuple[Outside, BeforeOps]:
    """Return the work outside the model of a step from `start` to `stop`, given the launch times of its ops in order,
    and what the host did before each op. Graphs that are recorded after the last launch count as setup. Without any
    recorded launch, nothing is known of it."""
    begin, end = np.append(start, launched), np.append(launched, max(stop, launched[-1]))
    long = np.flatnonzero(end - begin >= LONG_GAP_NS)
    if not len(long) or not by.threads.any():
        return Outside(), BeforeOps(*np.zeros((3, len(launched))))
    activity = host_activity(host, by, begin[long], end[long])
    after = (activity["window"] == len(long) - 1) & (long[-1] == len(launched))
    activity["cause"] = activity["cause"].mask(after & (activity["cause"] == "recording"), "setup")
    pieces = activity[activity["cause"].isin(OUTSIDE_MODEL)]
    op, ns = long[pieces["window"].to_numpy(dtype=np.int64)], pieces["duration_ns"].to_numpy()
    most = np.append(host_ns, np.inf)
    total = np.bincount(op, ns, minlength=len(most))
    ns = ns * np.minimum(1.0, most / np.maximum(total, 1.0))[op]
    place = np.where(op == len(launched), TAIL, op / len(launched))
    times = np.bincount(op, ns, minlength=len(most))[:-1].astype(np.float64)
    outside = _summed(pieces["cause"].astype(object).to_numpy(), ns, place)
    work = np.bincount(op, ns, minlength=len(most))[long] / np.maximum(end - begin, 1)[long]
    recorded = float((work * _ops_in(host, by, begin[long], end[long])).sum())
    outside = replace(outside, recorded=recorded, loading=float(ns[_loads(host, pieces)].sum()))
    rest = np.maximum(host_ns - times, 0.0)
    planning = np.minimum(_time_before_ops(activity, "planning", long, len(launched)), rest)
    recording = np.minimum(_time_before_ops(activity, "recording", long, len(launched)), rest - planning)
    return outside, BeforeOps(times, planning, recording)


def of_new_shapes(planning: Floats, ops: OpList, inputs: Objects) -> Floats:
    """Return the planning time of each op that no earlier one of its layer equals, by recorded inputs. A library keeps
    its plan for a shape: what takes an equal op long is a pause of the host. Lists of numbers, such as dilations, may
    differ where shapes are equal."""
    words = {"name": ops.name, "call": ops.call, "layer": ops.layer, "inputs": inputs}
    by_shape = np.array([given is not None and "ScalarList" not in given[1] for given in inputs], dtype=bool)
    return np.where(pd.DataFrame(words).duplicated().to_numpy() & by_shape, 0.0, planning)


LOADS = re.compile(r"LaunchKernel|FuncGetAttributes|(?:Module|Library)Load|Lazy Function Loading|Module Loading")
"""Calls that load a kernel if they take long enough to be setup."""


def _loads(host: pd.DataFrame, pieces: pd.DataFrame) -> Bools:
    """Return which of these pieces of the host's time load kernels."""
    return matching(host["name"].iloc[pieces["row"].to_numpy()], LOADS) & (pieces["cause"] == "setup").to_numpy()


def _ops_in(host: pd.DataFrame, by: Launching, begin: Ints, end: Ints) -> Ints:
    """Return the number of ops that the launching threads begin in each of these windows."""
    chosen = (host["category"] == "op").to_numpy() & by.threads[host["thread"].to_numpy()]
    starts = np.sort(host["start_ns"].to_numpy()[chosen])
    return np.searchsorted(starts, end) - np.searchsorted(starts, begin)


def _time_before_ops(activity: pd.DataFrame, cause: str, long: Ints, ops: int) -> Floats:
    """Return the time of a cause before each op. `long` holds the op of each window."""
    pieces = activity[activity["cause"] == cause]
    return np.bincount(long[pieces["window"]], pieces["duration_ns"], minlength=ops + 1)[:-1].astype(np.float64)


def _summed(cause: npt.NDArray[np.object_], ns: Floats, place: Floats) -> Outside:
    sums = (
        pd.DataFrame({"cause": cause, "place": place, "ns": ns}).groupby(["place", "cause"])["ns"].sum().reset_index()
    )
    return Outside(sums["cause"].to_numpy(dtype=object), sums["ns"].to_numpy(), sums["place"].to_numpy())


SHARE = _INTERVALS["share"]
"""Share of torch.profiler in the host time of eager code with all ops, shapes, and modules recorded."""
_WITHOUT_RANGES = _INTERVALS["share_without_ranges"]
"""The same without ranges of modules, which Python opens."""
_RANGES = 0.02
"""Ranges for each op from which modules are ranges."""
RECORDED_OP_US = _NUMBERS["recorded_op_us"]
"""Time in us for recording an op on tensors in the host's memory."""
EAGER_OP_US = _NUMBERS["eager_op_us"]
"""Host time per recorded op, including the profiler's."""
_SLOWEST = 2.5
"""Factor on the host time per op of a slow host. Host time beyond it is not due to dispatching ops."""
PYTHON_CALL_US = _INTERVALS["python_call_us"]
"""Time in µs for recording a call of a Python function (with_stack=True)."""
CALLING = _INTERVALS["calling"]
"""Largest share of recording calls in the time of Python code, as calls and what they do take time themselves."""
GRAPH_NODE_US = _INTERVALS["graph_node_us"]
"""Time in µs that recording a node of a graph adds to the graph's launch."""
_MOST_OF_OTHERS = 0.9
"""Largest share of the profiler in the host time that recorded ops do not explain."""
TRACED_CALL_US = _INTERVALS["traced_call_us"]
"""Time in µs that Nsight Systems takes to record a CUDA API call."""


def profiler_share(host_ns: float, recorded: Mapping[str, int], format_: str, python_ns: float = 0.0) -> Interval:
    """Return the fraction (0 to 1) of a step's host time that recording took. `recorded` is that of TracedStep.

    Calls of Python functions are recorded in this time and in `python_ns` beside it, alike.
    """
    if host_ns <= 0:
        return Interval(0.0, 0.0, 0.0)
    if format_ == "nsys":
        calls = recorded.get("runtime", 0) * 1e3 / host_ns
        return Interval(*(min(us * calls, SHARE.high) for us in _ends(TRACED_CALL_US)))
    dispatching = min(1.0, recorded.get("op", 0) * EAGER_OP_US * _SLOWEST * 1e3 / host_ns)
    nodes = recorded.get("graph_nodes", 0) * 1e3 / host_ns
    others = zip(calls_share(host_ns + python_ns, recorded), _ends(GRAPH_NODE_US), strict=True)
    times = [calls_part + a_node * nodes for calls_part, a_node in others]
    most, shares = _MOST_OF_OTHERS * (1 - dispatching), _ends(_dispatching_share(recorded))
    return Interval(*(share * dispatching + min(time, most) for share, time in zip(shares, times, strict=True)))


def calls_share(python_ns: float, recorded: Mapping[str, int]) -> tuple[float, float, float]:
    """Return the part of the time in which Python runs in which its calls were recorded: least, expected, most."""
    calls = recorded.get("python_calls", 0) * 1e3 / max(python_ns, 1.0)
    ends = zip(_ends(PYTHON_CALL_US), _ends(CALLING), strict=True)
    low, expected, high = (min(us * calls, most) for us, most in ends)
    return low, expected, high


def _dispatching_share(recorded: Mapping[str, int]) -> Interval:
    """Return the share of recording in the host time of ops, by what it recorded of them."""
    return SHARE if recorded.get("range", 0) > _RANGES * recorded.get("op", 0) else _WITHOUT_RANGES


def _ends(interval: Interval) -> tuple[float, float, float]:
    return interval.low, interval.expected, interval.high
