"""Summarizes one rank's trace in kilobytes for the analysis of the job: its steps, its collectives and its work."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute import UNKNOWN_CAUSE, Host, Idle, find_gaps, is_communication, take
from tracekit.analyzers.ranks.own_time import device_times, host_times, rank_work
from tracekit.analyzers.ranks.rank_trace import Alone, calls_of_cpu, calls_of_device, device_clocks, host_clocks
from tracekit.analyzers.ranks.tables import RANK_CALLS, RANK_IDLE, RANK_STEPS, RANK_WORK
from tracekit.analyzers.trace import ProcessGroup, Trace

MOST_WORK_ROWS = 400
"""Largest number of rows of a rank's work: those with the most time, plus one row with the sum of the others."""


@dataclass(frozen=True)
class RankSummary:
    """The summary of one rank."""

    rank: int | None
    """Its rank in the job; None if the trace does not state it."""
    world_size: int | None
    host: str
    groups: tuple[ProcessGroup, ...]
    device_name: str
    gpu: str
    """Id of the GPU; "" if unknown."""
    device_index: int
    """Index of the device; -1 for a CPU."""
    base_ns: int
    steps: pd.DataFrame = field(repr=False)
    idle: pd.DataFrame = field(repr=False)
    calls: pd.DataFrame = field(repr=False)
    work: pd.DataFrame = field(repr=False)
    problems: pd.DataFrame = field(repr=False)


def summarize(trace: Trace) -> RankSummary:
    """Summarize a trace. Raises InputError for a trace without work."""
    metadata, host = trace.metadata, Host(trace.host)
    mine = rank_work(trace, host)
    device = _main_device(mine.work) if mine.on_device else -1
    if mine.on_device:
        work = mine.work[(mine.work["device"] == device).to_numpy()]
        calls, clocks = calls_of_device(host, work), device_clocks(host, work, device_times(work))
        idle = idle_by_cause(find_gaps(host, mine.work, mine.steps))
    else:
        times = host_times(host, mine)
        clocks, calls = host_clocks(times.occupied), calls_of_cpu(host, mine.steps)
        work, idle = times.work, times.idle
    work = work[~is_communication(work["name"])]
    return RankSummary(
        rank=metadata.rank,
        world_size=metadata.world_size,
        host=metadata.host,
        groups=metadata.groups,
        device_name=mine.device_name,
        gpu=mine.gpu.id if mine.gpu else "",
        device_index=device,
        base_ns=metadata.base_ns,
        steps=_steps(mine.steps, calls, clocks, _counts(work, mine.steps)),
        idle=_idle(idle),
        calls=_with_own_time(calls, clocks),
        work=_work(work, mine.layers),
        problems=trace.problems,
    )


def idle_by_cause(idle: Idle) -> pd.DataFrame:
    """Return columns step, cause and idle_ns."""
    step = idle.gaps["step"].to_numpy()[idle.parts["gap"].to_numpy(dtype=np.int64)]
    cause = idle.parts["cause"].astype(object).replace("", UNKNOWN_CAUSE)
    return pd.DataFrame({"step": step, "cause": cause.to_numpy(), "idle_ns": idle.parts["duration_ns"].to_numpy()})


def _main_device(work: pd.DataFrame) -> int:
    """Return the device with most work, because a rank uses one."""
    devices, number = np.unique(work["device"].to_numpy(), return_inverse=True)
    return int(devices[np.bincount(number, work["duration_ns"].to_numpy()).argmax()])


def _steps(
    steps: pd.DataFrame, calls: pd.DataFrame, clocks: Alone, counts: dict[str, npt.NDArray[np.float64]]
) -> pd.DataFrame:
    begin = steps["start_ns"].to_numpy(np.int64)
    end = begin + steps["wall_ns"].to_numpy()
    issued = np.sort(calls["host_start_ns"].to_numpy(np.int64))
    last = np.append(issued, np.iinfo(np.int64).min)[np.searchsorted(issued, end) - 1]
    own = {
        "own_start_ns": clocks.step_until(begin),
        "own_end_ns": clocks.step_until(end),
        "device_start_ns": clocks.device_until(begin),
        "device_end_ns": clocks.device_until(end),
        "synced_ns": clocks.behind_at_sync(np.maximum(last, begin), end),
    }
    spans = {"step": steps["step"], "start_ns": begin, "wall_ns": steps["wall_ns"]}
    return RANK_STEPS.frame({**spans, **clocks.occupied.parts(begin, end), **own, **counts})


def _counts(work: pd.DataFrame, steps: pd.DataFrame) -> dict[str, npt.NDArray[np.float64]]:
    sums = work.groupby("step")[["flops", "bytes"]].sum().reindex(steps["step"], fill_value=0.0)
    return {name: sums[name].to_numpy(np.float64) for name in ("flops", "bytes")}


def _idle(causes: pd.DataFrame) -> pd.DataFrame:
    sums = causes.groupby(["step", "cause"], observed=True)["idle_ns"].sum().reset_index()
    return RANK_IDLE.frame({"step": sums["step"], "cause": sums["cause"], "idle_ns": sums["idle_ns"].round()})


def _with_own_time(calls: pd.DataFrame, clocks: Alone) -> pd.DataFrame:
    start, end = (calls[edge].to_numpy(np.int64) for edge in ("start_ns", "end_ns"))
    issued = calls["host_start_ns"].to_numpy(np.int64)
    latest = np.maximum.accumulate(issued)  # calls on several streams do not begin in the order of their launches
    own = {
        "own_start_ns": clocks.own_until(start),
        "own_end_ns": clocks.own_until(end),
        "device_start_ns": clocks.device_until(start),
        "device_end_ns": clocks.device_until(end),
        "synced_ns": clocks.behind_at_sync(np.r_[issued[:1], latest[:-1]], issued),
    }
    columns = {str(name): calls[name] for name in calls}
    beside = {"beside_ns": clocks.occupied.working.within(start, end), "blocks": ~clocks.occupied.compute.at(end - 1)}
    return RANK_CALLS.frame({**columns, **own, **beside})


def _work(work: pd.DataFrame, paths: np.ndarray) -> pd.DataFrame:
    inside = work[(work["step"] >= 0).to_numpy()]
    keys = pd.DataFrame(
        {
            "phase": inside["phase"].astype(object),
            "layer": take(paths, inside["layer"].to_numpy(), absent=""),
            "op": inside["op_name"].astype(object),
            "family": inside["family"].astype(object),
        }
    )
    values = {
        "calls": np.ones(len(inside), dtype=np.int64),
        "duration_ns": inside["duration_ns"].to_numpy(),
        **{name: inside[name].fillna(0.0).to_numpy() for name in ("flops", "bytes")},
    }
    sums = keys.assign(**values).groupby(list(keys), sort=False)[list(values)].sum().reset_index()
    sums = sums.sort_values("duration_ns", ascending=False, kind="stable")
    return RANK_WORK.frame({str(name): column.to_numpy() for name, column in _capped(sums, list(values)).items()})


def _capped(sums: pd.DataFrame, values: list[str]) -> pd.DataFrame:
    if len(sums) <= MOST_WORK_ROWS:
        return sums
    kept, rest = sums.iloc[:MOST_WORK_ROWS], sums.iloc[MOST_WORK_ROWS:]
    other = {"phase": "", "layer": "", "op": "", "family": "", **rest[values].sum().to_dict()}
    return pd.concat([kept, pd.DataFrame([other])], ignore_index=True).astype(
        {"calls": np.int64, "duration_ns": np.int64}
    )
