"""Facts about a group by its parallelism: overlap, repeated gathering of weights, and balance of its ranks."""

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]


def group_facts(calls: pd.DataFrame, kind: str, own: Floats) -> dict[str, float]:
    """Return the values of the columns overlap, regathered and imbalance of GROUPS; NaN where they do not apply.

    `calls` are those of all ranks of the group, `own` is the own time of these ranks, in ranks × steps.
    """
    return {
        "overlap": _overlap(calls),
        "regathered": _regathered(calls) if kind == "fsdp" else float("nan"),
        "imbalance": _imbalance(calls, kind, own),
    }


def _overlap(calls: pd.DataFrame) -> float:
    """Return the fraction of the calls' time in which their rank computes."""
    time = float((calls["end_ns"] - calls["start_ns"]).sum())
    return float((calls["device_end_ns"] - calls["device_start_ns"]).sum()) / time if time else float("nan")


def _regathered(calls: pd.DataFrame) -> float:
    """Return the bytes gathered in the backward pass divided by those gathered in the forward pass."""
    gathered = calls[calls["kind"] == "all-gather"]
    sums = gathered.groupby(gathered["phase"].astype(str))["bytes"].sum()
    forward = float(sums.get("forward", 0.0))
    return float(sums.get("backward", 0.0)) / forward if forward else float("nan")


def _imbalance(calls: pd.DataFrame, kind: str, own: Floats) -> float:
    """Return the largest load of a rank in a step divided by the mean load: bytes of its tokens, or own time of its
    stage."""
    if kind == "pipeline":
        loads = own.mean(axis=1, keepdims=True)
    elif kind == "expert":
        loads = calls.groupby(["rank", "step"])["bytes"].sum().unstack("step").fillna(0.0).to_numpy()
    else:
        return float("nan")
    mean = loads.mean(axis=0)
    known = mean > 0
    return float((loads.max(axis=0)[known] / mean[known]).mean()) if known.any() else float("nan")
