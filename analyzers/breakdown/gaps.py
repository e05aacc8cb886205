"""Why a device was idle between two pieces of work.

A gap ends with work whose launch the host began at some moment. If that was before the gap, the work was queued and on
its way. Otherwise the larger part decides: what lies after the launch is launch latency, what lies before it is the
host's, and the host's reason is what it was in when the device ran dry, or for most of the time until the launch: a
synchronisation (or a copy to the host, which is one), a copy to the device, a collective, or anything else.
"""

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.kernel_names import is_communication, is_copy_to_host, is_host_copy, matching
from tracekit.analyzers.breakdown.covered import Covered
from tracekit.analyzers.idle_tables import CAUSE_MEANINGS, CAUSES, GAPS, IDLE_CAUSES

Bools = npt.NDArray[np.bool_]

_ENDED = ["start_ns", "gap_ns", "delay_ns", "device", "step", "name", "op_name"]
_SYNCHRONISES = re.compile(r"synchroni[sz]e", re.IGNORECASE)
_COLLECTIVE_OP = re.compile(r"^(?:nccl|rccl|gloo|c10d)[:_]|record_param_comms|_c10d_functional", re.IGNORECASE)
UNKNOWN = "unknown"


def gaps_table(host: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """GAPS, in order of their ends. Empty in a trace without device work."""
    ending = np.flatnonzero(((work["gap_ns"] > 0) & (work["device"] >= 0)).to_numpy())
    ended = work[_ENDED].iloc[ending]
    end, length = ended["start_ns"].to_numpy(), ended["gap_ns"].to_numpy()
    return GAPS.frame(
        {
            "start_ns": end - length,
            "duration_ns": length,
            "device": ended["device"].to_numpy(),
            "step": ended["step"].to_numpy(),
            "work": ending,
            "op": ended["op_name"].cat.remove_unused_categories().array,
            "cause": pd.Categorical(_causes(host, work, ended), categories=[*CAUSES, ""]),
        }
    )


def idle_causes_table(gaps: pd.DataFrame) -> pd.DataFrame:
    """IDLE_CAUSES, the longest first."""
    found = gaps.assign(cause=gaps["cause"].astype(object).replace("", UNKNOWN), op=gaps["op"].astype(object))
    by = found.groupby("cause")["duration_ns"].agg(["size", "sum", "mean", "max"])
    by = by.sort_values("sum", ascending=False, kind="stable")
    waited = found.groupby(["cause", "op"])["duration_ns"].sum().sort_values(kind="stable").reset_index()
    op = waited.groupby("cause")["op"].last()
    return IDLE_CAUSES.frame(
        {
            "cause": by.index.to_numpy(dtype=object),
            "gaps": by["size"],
            "idle_ns": by["sum"],
            "share": by["sum"] / max(1, by["sum"].sum()),
            "mean_ns": by["mean"],
            "max_ns": by["max"],
            "op": op.reindex(by.index).to_numpy(dtype=object),
            "meaning": [CAUSE_MEANINGS.get(name, "the trace does not say what launched the work") for name in by.index],
        }
    )


def _causes(host: pd.DataFrame, work: pd.DataFrame, ended: pd.DataFrame) -> npt.NDArray[np.object_]:
    end, length, delay = (ended[name].to_numpy() for name in ("start_ns", "gap_ns", "delay_ns"))
    begin, queued = end - length, delay >= length
    called = np.where(queued, begin, end - delay)
    copies, collective = is_host_copy(ended["name"]), is_communication(ended["name"])

    def held_by(rows: Bools) -> Bools:
        spans = Covered(*_spans(host, rows))
        return spans.at(begin) | (2 * spans.within(begin, called) > called - begin)

    to_host = _launching(host, work, is_copy_to_host(work["name"]))
    to_device = _launching(host, work, is_host_copy(work["name"])) & ~to_host
    tests = {
        "": delay < 0,
        "transfer": queued & copies,
        "communication": queued & collective,
        "launch": 2 * (called - begin) <= length,
        "sync": held_by(synchronises(host) | to_host),
    }
    by_host = {"transfer": held_by(to_device), "communication": held_by(_collective_ops(host))}
    names = [*tests, *by_host]
    return np.select([*tests.values(), *by_host.values()], names, default="host").astype(object)


def synchronises(host: pd.DataFrame) -> Bools:
    """Calls in which the host waits for a device."""
    return (host["category"] == "runtime").to_numpy() & matching(host["name"], _SYNCHRONISES)


def _collective_ops(host: pd.DataFrame) -> Bools:
    return host["category"].isin(["op", "range"]).to_numpy() & matching(host["name"], _COLLECTIVE_OP)


def _launching(host: pd.DataFrame, work: pd.DataFrame, which: Bools) -> Bools:
    """Host rows that launched that work."""
    rows = work["launch"].to_numpy()[which]
    mask = np.zeros(len(host), dtype=bool)
    mask[rows[rows >= 0]] = True
    return mask


def _spans(host: pd.DataFrame, rows: Bools) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    start = host["start_ns"].to_numpy()[rows].astype(np.int64)
    return start, start + host["duration_ns"].to_numpy()[rows]
