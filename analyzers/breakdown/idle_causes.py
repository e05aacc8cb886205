"""The causes of idle time as tables: by cause, and step by step by what the host did."""

import numpy as np
import pandas as pd

from tracekit.analyzers.breakdown.gaps import Idle
from tracekit.analyzers.breakdown.host_names import host_names
from tracekit.analyzers.idle_tables import CAUSE_MEANINGS, HOST_CAUSES, IDLE_CAUSES

UNKNOWN = "unknown"


def idle_causes_table(idle: Idle) -> pd.DataFrame:
    """IDLE_CAUSES, the longest first."""
    parts = _named(idle.parts)
    of_gap = parts.groupby(["cause", "gap"])["duration_ns"].sum().reset_index()
    by = of_gap.groupby("cause")["duration_ns"].agg(["size", "sum", "mean", "max"])
    by = by.sort_values("sum", ascending=False, kind="stable")
    of_gap["op"] = idle.gaps["op"].astype(object).to_numpy()[of_gap["gap"].to_numpy(dtype=np.int64)]
    waited = of_gap.groupby(["cause", "op"])["duration_ns"].sum().sort_values(kind="stable").reset_index()
    op = waited.groupby("cause")["op"].last()
    return IDLE_CAUSES.frame(
        {
            "cause": by.index.to_numpy(dtype=object),
            "gaps": by["size"],
            "idle_ns": by["sum"].round().astype(np.int64),
            "share": by["sum"] / max(1, by["sum"].sum()),
            "mean_ns": by["mean"],
            "max_ns": by["max"].round().astype(np.int64),
            "op": op.reindex(by.index).to_numpy(dtype=object),
            "meaning": [CAUSE_MEANINGS.get(name, "the trace does not say what launched the work") for name in by.index],
        }
    )


def host_causes_table(host: pd.DataFrame, idle: Idle) -> pd.DataFrame:
    """HOST_CAUSES, by step and the longest first."""
    parts = _named(idle.parts)
    if parts.empty:
        return HOST_CAUSES.empty()
    names = host_names(host, parts["row"].to_numpy(dtype=np.int64), parts["cause"].to_numpy())
    step = idle.gaps["step"].to_numpy()[parts["gap"].to_numpy(dtype=np.int64)]
    keys = ["step", "cause", "name", "location", "caller"]
    grouped = pd.concat([parts.reset_index(drop=True), names], axis=1).assign(step=step).groupby(keys, sort=False)
    sums = grouped.agg(gaps=("gap", "nunique"), idle_ns=("duration_ns", "sum")).reset_index()
    sums = sums.sort_values(["step", "idle_ns"], ascending=[True, False], kind="stable")
    return HOST_CAUSES.frame({**{name: sums[name] for name in [*keys, "gaps"]}, "idle_ns": sums["idle_ns"].round()})


def _named(parts: pd.DataFrame) -> pd.DataFrame:
    return parts.assign(cause=parts["cause"].astype(object).replace("", UNKNOWN))
