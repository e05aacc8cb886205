"""Finds the gaps in which a device was idle, and the causes of each gap.

A gap ends with work that the host launched at some time. If the launch was before the gap, the work was queued, and the
gap is launch latency. Otherwise the time after the launch is launch latency, and the time before it is attributed to
what the host did. If the host had been waiting for the device when the gap began, nothing was queued, so dispatch after
that wait is attributed to the synchronization.
"""

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.activity import Launching, host_activity, launching
from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.host_kinds import (
    CODE,
    UNKNOWN,
    Codes,
    categorical,
    codes_of,
    first_true,
    is_any,
    sums_by,
)
from tracekit.analyzers.attribute.intervals import Covered
from tracekit.analyzers.attribute.kernel_names import is_communication, is_copy_to_host, is_host_copy
from tracekit.analyzers.core import Bools, Ints
from tracekit.analyzers.results import GAPS

LATE_NS = 500_000
"""Time from the return of a launch to the start of its work that is far above any launch latency, in ns."""
LONG_GAP_NS = 100_000
"""A gap with more host time than this, in ns, is divided among everything that the host did; a shorter one has a single
cause."""


class Idle(msgspec.Struct, frozen=True, eq=False):
    """The gaps, and the parts of each by cause."""

    gaps: pd.DataFrame
    """The table GAPS, ordered by device and time."""
    parts: pd.DataFrame
    """Columns gap, cause ("" if unknown), row (of the host table; -1 for none) and duration_ns. The durations of a
    gap's parts sum to its duration. Causes are categories in the order of CAUSES."""


def find_gaps(host: Host, work: pd.DataFrame, steps: pd.DataFrame) -> Idle:
    """Return the gaps of all devices in steps; empty without device work."""
    spans = _with_launches(idle_spans(work, steps), work)
    parts = [_parts(host, work, rows) for _, rows in spans.groupby("device", sort=True)]
    every = pd.concat(parts, ignore_index=True) if parts else _no_parts()
    return Idle(_gaps_table(spans, work, every), every)


def _with_launches(spans: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """Add when the work that ends each gap was launched: `called` (clipped to the gap; -1 if unknown), and `queued`
    (whether that was before the gap). The host ends the gap at the end of a step, if any launch is recorded."""
    delays = work["delay_ns"].to_numpy()
    delay = np.append(delays, 0 if (delays >= 0).any() else -1)[spans["work"].to_numpy()]
    begin, end = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    called = np.where(delay < 0, -1, np.maximum(end - delay, begin))
    return spans.assign(called=called, queued=(delay >= end - begin) & (spans["work"] >= 0))


def _gaps_table(spans: pd.DataFrame, work: pd.DataFrame, parts: pd.DataFrame) -> pd.DataFrame:
    row = spans["work"].to_numpy()
    names = work["op_name"].cat
    op = pd.Categorical.from_codes(np.append(names.codes.to_numpy(), -1)[row], names.categories)
    op = op if "" in op.categories else op.add_categories([""])
    return GAPS.frame(
        {
            "start_ns": spans["start_ns"],
            "duration_ns": spans["end_ns"] - spans["start_ns"],
            "device": spans["device"],
            "step": spans["step"],
            "work": row,
            "op": op.fillna("").remove_unused_categories(),
            "cause": categorical(_longest_cause(parts, len(spans))),
        }
    )


def _longest_cause(parts: pd.DataFrame, gaps: int) -> Codes:
    """Return the cause of most of each gap's time."""
    sums, keys, _ = sums_by(parts["duration_ns"].to_numpy(), parts["gap"].to_numpy(), codes_of(parts["cause"]))
    order = np.argsort(sums, kind="stable")
    longest = np.full(gaps, CODE[UNKNOWN])
    longest[keys[0][order]] = keys[1][order]  # If a gap has several causes, the last assignment wins.
    return longest


def _parts(host: Host, work: pd.DataFrame, spans: pd.DataFrame) -> pd.DataFrame:
    """Return the parts of the gaps of one device."""
    mine = work[["name", "launch"]][(work["device"] == spans["device"].iloc[0]).to_numpy()]
    gap, begin, end = spans.index.to_numpy(), spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    called = spans["called"].to_numpy()
    host_end = np.where(called < 0, end, called)
    long = (host_end - begin >= LONG_GAP_NS) & ~spans["queued"].to_numpy()
    waits = _Waits(host, mine)
    cause, row = _one_cause(host, work, spans, waits)
    short = _frame(gap[~long], cause[~long], row[~long], (end - begin)[~long])
    if not long.any():
        return short
    later = long & (end > host_end)
    rest = _frame(gap[later], _launch_cause(work, spans[later]), np.full(later.sum(), -1), (end - host_end)[later])
    parts = _host_parts(host.table, launching(host, mine), spans[long], host_end[long], waits)
    return pd.concat([short, parts, rest], ignore_index=True)


def _frame(gap: Ints, cause: Codes, row: Ints, ns: npt.NDArray) -> pd.DataFrame:
    return pd.DataFrame(
        {"gap": gap, "cause": categorical(cause), "row": row.astype(np.int32), "duration_ns": ns.astype(np.float64)}
    )


def _host_parts(
    host: pd.DataFrame, by: Launching, spans: pd.DataFrame, host_end: Ints, waits: "_Waits"
) -> pd.DataFrame:
    begin = spans["start_ns"].to_numpy()
    parts = host_activity(host, by, begin, host_end)
    window, cause = parts["window"].to_numpy(), codes_of(parts["cause"])
    waited, call = waits.at(begin)
    tests = {
        UNKNOWN: (spans["called"].to_numpy() < 0)[window] & is_any(cause, ["dispatch", "unexplained"]),
        "sync": (cause == CODE["dispatch"]) & waited[window],
    }
    row = np.where(tests["sync"], call[window], parts["row"].to_numpy())
    return _frame(spans.index.to_numpy()[window], first_true(tests, cause), row, parts["duration_ns"].to_numpy())


def _launch_cause(work: pd.DataFrame, spans: pd.DataFrame) -> Codes:
    """Return the cause of the time between a launch and its work: transfer, communication, queued or launch."""
    name = work["name"].iloc[np.maximum(spans["work"].to_numpy(), 0)]
    long = (spans["end_ns"] - spans["called"]).to_numpy() >= LATE_NS
    tests = {"transfer": is_host_copy(name), "communication": is_communication(name), "queued": long}
    return first_true(tests, "launch")


def _one_cause(host: Host, work: pd.DataFrame, spans: pd.DataFrame, waits: "_Waits") -> tuple[Codes, Ints]:
    """Return a single cause for each gap, and the host row of the call in which the host waited (-1 for none)."""
    begin, end, called = (spans[name].to_numpy() for name in ("start_ns", "end_ns", "called"))
    until = np.where(called < 0, end, called)
    waited, call = waits.at(begin)
    tests = {
        "launch": 2 * (until - begin) <= end - begin,
        "sync": waited | _mostly(waits.spans, begin, until),
        "transfer": _mostly(Covered(*_times(host, _launching(host, work, _to_device(work)))), begin, until),
        "communication": _mostly(Covered(*_times(host, host.communicates)), begin, until),
    }
    cause = np.where(spans["queued"].to_numpy(), _launch_cause(work, spans), first_true(tests, "dispatch"))
    cause[called < 0] = CODE[UNKNOWN]
    return cause, np.where((cause == CODE["sync"]) & waited, call, -1)


def _mostly(covered: Covered, begin: Ints, end: Ints) -> Bools:
    return covered.at(begin) | (2 * covered.within(begin, end) > end - begin)


class _Waits:
    """The calls in which a host thread waits for a device, including copies to the host."""

    def __init__(self, host: Host, work: pd.DataFrame) -> None:
        rows = np.flatnonzero(host.waits | _launching(host, work, is_copy_to_host(work["name"])))
        start, end = _times(host, rows)
        order = np.argsort(start, kind="stable")
        self._start, self._end, self._rows = start[order], end[order], rows[order]
        self.spans = Covered(start, end)

    def at(self, time: Ints) -> tuple[Bools, Ints]:
        """Return whether a call was open at each time, and the row of the call that began last (-1 for none)."""
        last = np.searchsorted(self._start, time, "right") - 1
        return self.spans.at(time), np.where(last >= 0, np.append(self._rows, -1)[last], -1)


def _to_device(work: pd.DataFrame) -> Bools:
    return is_host_copy(work["name"]) & ~is_copy_to_host(work["name"])


def _launching(host: Host, work: pd.DataFrame, which: Bools) -> Bools:
    """Return which host rows launched the work in the mask."""
    rows = work["launch"].to_numpy()[which]
    mask = np.zeros(len(host.start), dtype=bool)
    mask[rows[rows >= 0]] = True
    return mask


def _times(host: Host, rows: npt.NDArray) -> tuple[Ints, Ints]:
    return host.start[rows], host.start[rows] + host.duration[rows]


def _no_parts() -> pd.DataFrame:
    nothing = np.zeros(0, dtype=np.int64)
    return _frame(nothing, nothing.astype(np.int8), nothing, nothing)


_COLUMNS = ("start_ns", "end_ns", "device", "step", "work", "edge")


def idle_spans(work: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the idle spans, ordered by device and time. Those of a device do not overlap.

    Columns are start_ns, end_ns, device, step, work (row of the work that ends the span; -1 for the end of the step)
    and edge (whether it is before a step's first work or after its last).
    """
    between = np.flatnonzero(((work["gap_ns"] > 0) & (work["device"] >= 0)).to_numpy())
    end = work["start_ns"].to_numpy()[between].astype(np.int64)
    gaps = pd.DataFrame(
        {
            "start_ns": end - work["gap_ns"].to_numpy()[between],
            "end_ns": end,
            "device": work["device"].to_numpy()[between],
            "step": work["step"].to_numpy()[between],
            "work": between,
            "edge": False,
        }
    )
    on_devices = work[(work["device"] >= 0).to_numpy()]
    edges = [_edges(rows, steps) for _, rows in on_devices.groupby("device", sort=True)]
    parts = [each for each in (gaps, *edges) if len(each)]
    spans = pd.concat(parts, ignore_index=True) if parts else gaps
    return spans.sort_values(["device", "start_ns"], kind="stable", ignore_index=True)


def _edges(work: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the idle spans of one device between each step's start and first work, and its last work and end."""
    start = work["start_ns"].to_numpy().astype(np.int64)
    latest = np.maximum.accumulate(start + work["duration_ns"].to_numpy())
    inside = work.assign(place=np.arange(len(work)))[(work["step"] >= 0).to_numpy()]
    first = inside.groupby("step")["place"].min()
    begin, stop = (steps["start_ns"].to_numpy()[first.index], _ends(steps)[first.index])
    place = first.to_numpy()
    before = np.where(place > 0, latest[place - 1], np.iinfo(np.int64).min)
    last = np.searchsorted(start, stop, "left") - 1
    lead = _spans(np.maximum(begin, before), start[place], first.index, work.index.to_numpy()[place])
    tail = _spans(latest[last], stop, first.index, np.full(len(last), -1))
    both = pd.concat([lead, tail], ignore_index=True).assign(device=work["device"].iloc[0], edge=True)
    return both[both["end_ns"] > both["start_ns"]][list(_COLUMNS)]


def _ends(steps: pd.DataFrame) -> Ints:
    return (steps["start_ns"] + steps["wall_ns"]).to_numpy().astype(np.int64)


def _spans(start: Ints, end: Ints, step: "pd.Index[int]", work: Ints) -> pd.DataFrame:
    return pd.DataFrame({"start_ns": start, "end_ns": end, "step": step.to_numpy(), "work": work})
