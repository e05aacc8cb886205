"""Sets apart the time that does not recur, and device work that the file does not hold.

Only time that recurs can be saved. Before anything else is made of a trace, these windows are found in it, in which no
device works:

- start-up: a driver call, a compilation, or the first call of an op, far longer than the median of its kind, which
  does not recur with the steps: creating the context, loading kernels, choosing algorithms;
- pause: the only long stretch in which the launching threads recorded nothing;
- earlier work: before nearly all recorded work, between the return of a launch and the start of its work on an idle
  device: the device still did what was launched before the recording;
- not recorded: the same between pieces of work. The device worked on something that the file does not hold.

The first three are cut out of the trace: what follows moves forward. The last is filled with work of unknown kind, so
that it is neither idle nor saved by anything.
"""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.attribute.activity import launching
from tracekit.analyzers.attribute.attributed import Issued
from tracekit.analyzers.attribute.gaps import LATE_NS
from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.intervals import Covered
from tracekit.analyzers.attribute.kernel_names import is_host_copy, matching, one_of
from tracekit.analyzers.attribute.nesting import in_blocks, take
from tracekit.analyzers.attribute.recorded_ranges import is_step_name
from tracekit.analyzers.core import Bools, Ints
from tracekit.analyzers.results import EARLIER_WORK, NOT_RECORDED, PAUSE, SET_APART, START_UP, Analysis
from tracekit.analyzers.trace import Trace

_FAR = 20
"""A call is far longer than its kind from this multiple of the median duration,"""
_SLOW_NS = 1_000_000
"""and this duration in ns."""
_NEVER_RECURS_NS = 50_000_000
"""A driver call of this duration in ns initializes something, even without others of its kind to compare it with."""
_FEW = 3
"""Fewest calls with a median."""
_RARE = 0.1
"""Largest fraction of the calls of a kind that may be far longer than the others."""
_TWICE = 2
"""A kernel that is loaded in the first step, and an algorithm that is chosen in the second, do not recur."""
_PAUSE_NS = 50_000_000
_SINGLE = 0.25
"""A pause is single if no other stretch lasts at least this fraction of it."""
_NOTABLE = 0.02
"""Windows that sum to less than this fraction of the recording change nothing, and stay."""
_LOADS = re.compile(r"^cu(?:Library|Module)Load")
_HARDLY_ANY = 0.02
"""Fraction of the busy time before which an unrecorded wait is for earlier work."""

UNRECORDED_WORK = "(not recorded)"
_UNKNOWN_KERNEL = {"name": UNRECORDED_WORK, "category": "kernel"}


def set_apart(host: Host, issued: Issued, steps: pd.DataFrame) -> pd.DataFrame:
    """Return SET_APART for the work and the steps (STEPS) of a trace, in order; empty if it is hardly any."""
    if not issued.items.on_device:
        return SET_APART.empty()
    work = _launched(issued)
    threads, copies = launching(host, work).threads[host.thread], is_host_copy(work["name"])
    marks_a_step, waits = host.ranges.are(is_step_name), _waits(host, work, copies)
    begin, end = _bounds(host, work)
    idle = Covered(*_times(work)).outside(begin, end)
    unrecorded = _unrecorded(host, work, copies, idle)
    idle = idle.common(Covered(*_joined(_spans(host, waits), _times(unrecorded))).outside(begin, end))
    recorded = (Covered(*_spans(host, rows)).spans() for rows in in_blocks(threads & ~marks_a_step))
    quiet = Covered(*_joined(*recorded)).outside(begin, end).common(idle)
    starting = _starting(host, work, steps, idle, threads & ~waits)
    every = pd.concat([_named(host.table, starting, idle), _pause(quiet), unrecorded], ignore_index=True)
    notable = every["duration_ns"].sum() >= _NOTABLE * (end - begin)
    return every.sort_values("start_ns", ignore_index=True) if notable else SET_APART.empty()


def _launched(issued: Issued) -> pd.DataFrame:
    """Return the columns of WORK that say when work was launched and ran."""
    items = issued.items
    of_items = {name: getattr(items, name) for name in ("name", "device", "stream")}
    times = {"start_ns": items.start, "duration_ns": items.duration, "busy_ns": items.busy}
    return pd.DataFrame({**of_items, **times, "launch": issued.origin.launch}, copy=False)


def _times(rows: pd.DataFrame) -> tuple[Ints, Ints]:
    start = rows["start_ns"].to_numpy().astype(np.int64)
    return start, start + rows["duration_ns"].to_numpy()


def _spans(host: Host, rows: Bools | Ints) -> tuple[Ints, Ints]:
    start = host.start[rows].astype(np.int64)
    return start, start + host.duration[rows]


def _joined(*spans: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    starts, ends = zip(*spans, strict=True)
    return np.concatenate(starts), np.concatenate(ends)


def _bounds(host: Host, work: pd.DataFrame) -> tuple[int, int]:
    """Return when the recording begins and ends. Captures from other files lie before it, at negative times."""
    times = (host.start, host.duration), (work["start_ns"].to_numpy(), work["duration_ns"].to_numpy())
    known = [(start.astype(np.int64, copy=False), ns) for start, ns in times if len(start)]
    return max(0, min(int(start.min()) for start, _ in known)), max(int((start + ns).max()) for start, ns in known)


def _waits(host: Host, work: pd.DataFrame, copies: Bools) -> Bools:
    """Return which rows are calls that may wait for a device, such as those that launch copies by the host."""
    waits = host.waits.copy()
    waits[work["launch"].to_numpy()[copies & (work["launch"] >= 0).to_numpy()]] = True
    return waits


def recurring(trace: Trace, apart: pd.DataFrame) -> Trace:
    """Return the trace without the windows of SET_APART, and with work in those that are not recorded."""
    if apart.empty:
        return trace
    device = _filled(trace.device, apart[(apart["kind"] == NOT_RECORDED).to_numpy()])
    cut = _Cut(apart)
    return replace(trace, host=cut.shortened(trace.host), device=cut.shortened(device))


def as_recorded(analysis: Analysis) -> Analysis:
    """Return the analysis with its work, gaps and steps at the times at which they were recorded."""
    if analysis.set_apart.empty:
        return analysis
    cut = _Cut(analysis.set_apart)
    work, gaps, steps = (cut.restored(table) for table in (analysis.work, analysis.gaps, analysis.timeline.steps))
    return replace(analysis, work=work, gaps=gaps, timeline=replace(analysis.timeline, steps=steps))


class _Cut:
    """The windows that are cut out, and the length of all windows before each of them."""

    def __init__(self, apart: pd.DataFrame) -> None:
        gone = apart[(apart["kind"] != NOT_RECORDED).to_numpy()]
        self._covered = Covered(*_times(gone))

    def shortened(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows with later starts moved forward, and without the windows in their durations."""
        start, end = _times(table)
        left, length = self._after(start), self._after(end) - self._after(start)
        return table.assign(start_ns=left, duration_ns=length.astype(table["duration_ns"].to_numpy().dtype))

    def restored(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows with their starts where they were recorded; what begins where a window was began after it."""
        begin, end = self._covered.spans()
        lost = np.append(0, np.cumsum(end - begin))
        start = table["start_ns"].to_numpy()
        return table.assign(start_ns=start + lost[np.searchsorted(begin - lost[:-1], start, "right")])

    def _after(self, times: Ints) -> Ints:
        return times - self._covered.before(times)


def _filled(device: pd.DataFrame, windows: pd.DataFrame) -> pd.DataFrame:
    """Return DEVICE with a kernel of unknown kind in each window, on the stream of the work that follows it."""
    if windows.empty:
        return device
    at = np.searchsorted(device["start_ns"].to_numpy(), windows["start_ns"].to_numpy())
    like = device.iloc[np.minimum(at, len(device) - 1)].reset_index(drop=True)
    names, kinds = (_with_category(device[name], word) for name, word in _UNKNOWN_KERNEL.items())
    unknown = dict.fromkeys(("correlation", "external_id", "bytes", "blocks", "graph", "graph_node"), -1)
    words = {
        name: pd.Categorical([_UNKNOWN_KERNEL[name]] * len(like), categories=column.cat.categories)
        for name, column in (("name", names), ("category", kinds))
    }
    times = {name: windows[name].to_numpy() for name in ("start_ns", "duration_ns")}
    every = [device.assign(name=names, category=kinds), like.assign(**times, **words, **unknown)]
    return pd.concat(every, ignore_index=True).sort_values("start_ns", kind="stable", ignore_index=True)


def _with_category(column: pd.Series, word: str) -> pd.Series:
    return column if word in column.cat.categories else column.cat.add_categories([word])


def _starting(host: Host, work: pd.DataFrame, steps: pd.DataFrame, idle: Covered, mine: Bools) -> Ints:
    """Return the host rows among `mine` that start something up: driver calls and compilations that last too long to
    recur, and calls of the driver and of ops that launch work far longer than the others of their kind."""
    slow = np.flatnonzero(mine & (host.duration >= _SLOW_NS))
    alone = idle.within(host.start[slow], host.start[slow] + host.duration[slow])
    slow, alone = slow[alone >= _SLOW_NS], alone[alone >= _SLOW_NS]
    if not len(slow):
        return slow
    code = host.name.cat.codes.to_numpy()
    name = code[slow].astype(np.int64)
    alike = mine & np.isin(code, name)
    calls = one_of(host.table["category"], ("runtime", "overhead")) & alike
    kinds = calls | _launching(host, work, host.is_op & alike)
    usual, count = _median_by(code[kinds], host.duration[kinds], name)
    far = kinds[slow] & (count >= _FEW) & (alone >= np.maximum(_SLOW_NS, _FAR * usual))
    rare = np.bincount(name[far], minlength=int(name.max()) + 1)[name] <= np.maximum(1, _RARE * count)
    once = (far & rare) | ((calls | host.compiles)[slow] & (alone >= _NEVER_RECURS_NS))
    return slow[once & ~_recurs(name, host.start[slow], once, steps)]


def _median_by(code: Ints, ns: Ints, wanted: Ints) -> tuple[npt.NDArray[np.float64], Ints]:
    """Return the median duration and the number of the rows with each of the wanted names."""
    groups = pd.Series(ns).groupby(code)
    usual, count = groups.median().reindex(wanted, fill_value=0), groups.size().reindex(wanted, fill_value=0)
    return usual.to_numpy().astype(np.float64), count.to_numpy().astype(np.int64)


def _recurs(code: Ints, start: Ints, mask: Bools, steps: pd.DataFrame) -> Bools:
    """Return which rows have a name that `mask` contains in more than a few steps."""
    begins = steps["host_start_ns"].to_numpy()
    if len(begins) < 2 or not mask.any():
        return np.zeros(len(code), dtype=bool)
    pairs = pd.DataFrame({"name": code[mask], "step": np.searchsorted(begins, start[mask], "right")}).drop_duplicates()
    seen = pairs.groupby("name").size().reindex(range(int(code.max()) + 1), fill_value=0).to_numpy()
    return seen[code] > (_TWICE if len(begins) > _TWICE + 1 else 1)


def _launching(host: Host, work: pd.DataFrame, among: Bools) -> Bools:
    """Return which of these rows contain a launch of work."""
    launches, found = work["launch"].to_numpy(), among.copy()
    times = np.sort(host.start[launches[launches >= 0]])
    for rows in in_blocks(among):
        start, end = _spans(host, rows)
        found[rows] = np.searchsorted(times, end, "right") > np.searchsorted(times, start, "left")
    return found


def _named(host: pd.DataFrame, rows: Ints, idle: Covered) -> pd.DataFrame:
    """Return the windows of idle time in these host rows, each with the name of the shortest row around it."""
    rows = rows[np.argsort(host["duration_ns"].to_numpy()[rows], kind="stable")]
    start, end = _times(host.iloc[rows])
    begin, until = Covered(start, end).common(idle).spans()
    names = host["name"].iloc[rows].astype(str).to_numpy()
    around = [int(np.argmax((start <= at) & (at < end))) for at in (begin + until) // 2]
    return _windows(START_UP, begin, until, [str(names[at]) for at in around])


def _windows(kind: str, begin: Ints, end: Ints, names: Sequence[str] = ()) -> pd.DataFrame:
    named = names if len(names) else [""] * len(begin)
    return SET_APART.frame(
        {"start_ns": begin, "duration_ns": end - begin, "kind": [kind] * len(begin), "name": list(named)}
    )


def _pause(quiet: Covered) -> pd.DataFrame:
    """Return the longest of these stretches without an event, if it is long and the only one."""
    begin, end = quiet.spans()
    longest = np.argsort(begin - end, kind="stable")[:2]
    length = np.append(end[longest] - begin[longest], [0, 0])
    single = length[0] >= _PAUSE_NS and length[1] < _SINGLE * length[0]
    return _windows(PAUSE, begin[longest[: int(single)]], end[longest[: int(single)]])


def _unrecorded(host: Host, work: pd.DataFrame, copies: Bools, idle: Covered) -> pd.DataFrame:
    """Return the idle time between the return of a launch and the start of its work, if it is long. Right after the
    driver loaded code, the device makes it ready: that is start-up.

    Before nearly all work, it is cut out from the last launch in it, with which the host has run ahead. Amid the work
    of several streams nothing is taken for unrecorded: one may wait for an event of another rank.
    """
    launch, start = work["launch"].to_numpy(), work["start_ns"].to_numpy().astype(np.int64)
    called = host.start_of(launch) + take(host.duration, launch, 0)
    late = (launch >= 0) & (start - called >= LATE_NS) & ~copies
    begin, end = Covered(called[late], start[late]).common(idle).spans()
    long = end - begin >= LATE_NS
    begin, end = begin[long], end[long]
    busy = np.append(0, np.cumsum(work["busy_ns"].to_numpy()))
    earlier = busy[np.searchsorted(start, begin)] <= _HARDLY_ANY * busy[-1]
    returned = np.sort(called[launch >= 0])
    ahead = np.append(returned, 0)[np.searchsorted(returned, end) - 1]
    until = np.where(earlier, np.clip(ahead, begin, end), end)
    amid = earlier | (len(work[["device", "stream"]].drop_duplicates()) == 1)
    loads = host.table[matching(host.name, _LOADS)]
    before = np.append(0, returned)[np.searchsorted(returned, begin)]
    loaded = np.diff(np.searchsorted(np.sort(loads["start_ns"]), [before, begin]), axis=0)[0] > 0
    amid &= ~loaded
    filled, left = _windows(NOT_RECORDED, begin[amid], until[amid]), _windows(EARLIER_WORK, until, end)
    ready = _windows(START_UP, begin[loaded], until[loaded], [str(name) for name in loads["name"][:1]] * loaded.sum())
    every = pd.concat([filled, left, ready], ignore_index=True)
    return every[(every["duration_ns"] > 0).to_numpy()]
