"""Tables of the causes of idle time: by cause, and for each step by what the host did."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.cause_codes import UNKNOWN, codes_of, sums_by
from tracekit.analyzers.attribute.gaps import Idle
from tracekit.analyzers.attribute.host_names import NAME_COLUMNS, host_names
from tracekit.analyzers.attribute.nesting import Rows, take
from tracekit.analyzers.results import CAUSE_MEANINGS, HOST_CAUSES, IDLE_CAUSES

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

UNKNOWN_CAUSE = "unknown"


def idle_causes_table(idle: Idle) -> pd.DataFrame:
    """Return IDLE_CAUSES, longest first."""
    cause, gap, ns = (idle.parts[name] for name in ("cause", "gap", "duration_ns"))
    sums, (code, of) = sums_by(ns.to_numpy(), codes_of(cause), gap.to_numpy())
    by = pd.Series(sums).groupby(code).agg(["size", "sum", "mean", "max"])
    by = by.sort_values("sum", ascending=False, kind="stable")
    ops = idle.gaps["op"].cat
    waited, (caused, op) = sums_by(sums, code, ops.codes.to_numpy()[of])
    longest = pd.Series(op, caused).iloc[np.argsort(waited, kind="stable")].groupby(level=0).last()
    words = _words(cause.cat.categories)[by.index]
    return IDLE_CAUSES.frame(
        {
            "cause": words,
            "gaps": by["size"],
            "idle_ns": by["sum"].round().astype(np.int64),
            "share": by["sum"] / max(1, by["sum"].sum()),
            "mean_ns": by["mean"],
            "max_ns": by["max"].round().astype(np.int64),
            "op": ops.categories.to_numpy(dtype=object)[longest.reindex(by.index).to_numpy(dtype=np.int64)],
            "meaning": [CAUSE_MEANINGS.get(word, "the launch of the work is not recorded") for word in words],
        }
    )


def host_causes_table(host: pd.DataFrame, idle: Idle) -> pd.DataFrame:
    """Return HOST_CAUSES, by step and longest first."""
    parts = idle.parts
    if parts.empty:
        return HOST_CAUSES.empty()
    cause, gap = codes_of(parts["cause"]), parts["gap"].to_numpy()
    label, names = host_names(host, parts["row"].to_numpy(dtype=np.int64), cause)
    step = idle.gaps["step"].to_numpy()
    steps, of_step = np.unique(step, return_inverse=True)
    of_gap, (in_step, code, named, _) = sums_by(parts["duration_ns"].to_numpy(), of_step[gap], cause, label, gap)
    ns, (in_step, code, named), gaps = _counted(of_gap, in_step, code, named)
    order = np.lexsort((-ns, in_step))
    texts = names[named[order]]
    return HOST_CAUSES.frame(
        {
            "step": steps[in_step[order]],
            "cause": _words(parts["cause"].cat.categories)[code[order]],
            **dict(zip(NAME_COLUMNS, texts.T, strict=True)),
            "gaps": gaps[order],
            "idle_ns": ns[order].round(),
        }
    )


def _counted(ns: Floats, *keys: Ints) -> tuple[Floats, tuple[Ints, ...], Ints]:
    """Return the sums of times by keys, these keys, and the number of times with each."""
    sums, distinct = sums_by(ns, *keys)
    counts, _ = sums_by(np.ones(len(ns)), *keys)
    return sums, distinct, counts.astype(np.int64)


def _words(causes: "pd.Index[str]") -> npt.NDArray[np.object_]:
    return np.array([cause if cause != UNKNOWN else UNKNOWN_CAUSE for cause in causes], dtype=object)


FULL = 1_000
"""Launches that are not done from which the queue is full: CUDA takes 1,022 of one stream."""
LONG_NS = 50_000
"""Time of a launch, in nanoseconds, from which it waited."""


def blocked_launches(host: pd.DataFrame, work: pd.DataFrame) -> Rows:
    """Return the host rows of the launches of `work` (rows of WORK of a device) that waited for a full queue."""
    calls = work[~work.duplicated("launch") | (work["launch"] < 0).to_numpy()]
    launch = calls["launch"].to_numpy()
    if len(calls) < FULL:
        return np.zeros(0, dtype=np.int32)
    began = take(host["start_ns"].to_numpy(), launch, np.iinfo(np.int64).min)
    ended = np.sort((calls["start_ns"] + calls["duration_ns"]).to_numpy())
    pending = np.searchsorted(np.sort(began), began) - np.searchsorted(ended, began, "right")
    long = take(host["duration_ns"].to_numpy(), launch, 0) >= LONG_NS
    return np.sort(launch[(launch >= 0) & (pending >= FULL) & long])
