"""Compares counted FLOPs and bytes with the measured ones that replaced them."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers import problems
from tracekit.analyzers.problems import Problem
from tracekit.analyzers.result_tables import COUNTERS_COMPARISON
from tracekit.analyzers.results import CounterSource
from tracekit.analyzers.roofline.costing import Costed

Floats = npt.NDArray[np.float64]

_FAR = 2.0
_NOTABLE = 0.01
_QUANTITIES = ("flops", "bytes")


def counters_comparison(work: pd.DataFrame, counted: Costed) -> pd.DataFrame:
    """Return COUNTERS_COMPARISON for the kernels of WORK that are both measured and counted, longest family first."""
    used = (work["counters"] >= 0).to_numpy()
    both = pd.DataFrame(
        {
            "family": counted.family,
            "busy_ns": work["busy_ns"],
            **{f"counted_{name}": getattr(counted, name) for name in _QUANTITIES},
            **{f"measured_{name}": work[name] for name in _QUANTITIES},
        }
    )[used & (counted.family != "")]
    groups = sorted(both.groupby("family"), key=lambda group: -group[1]["busy_ns"].sum())
    rows = [_family(str(name), group, int(work["busy_ns"].sum())) for name, group in groups]
    return COUNTERS_COMPARISON.frame({c.name: [row[c.name] for row in rows] for c in COUNTERS_COMPARISON.columns})


def counter_source(work: pd.DataFrame, counters: pd.DataFrame) -> CounterSource:
    used = (work["counters"] >= 0).to_numpy()
    busy = work["busy_ns"].to_numpy()
    return CounterSource(
        launches=len(counters),
        unmatched=len(counters) - int(work["counters"][used].nunique()),
        matched=int(used.sum()),
        kernels=int((work["category"] == "kernel").sum()),
        busy_share=float(busy[used].sum() / max(int(busy.sum()), 1)),
    )


def counter_problems(work: pd.DataFrame, counters: pd.DataFrame | None, compared: pd.DataFrame) -> pd.DataFrame:
    """Return problems about counters: how much work is measured, unmatched launches, and disagreement with counts."""
    if counters is None:
        return problems.table([])
    source = counter_source(work, counters)
    detail = f"{source.kernels:,} kernels, {source.busy_share:.1%} of the busy time,"
    nothing = "" if source.matched else "; all FLOPs and bytes are counted"
    return problems.table(
        [
            problems.problem("measured-counters", source.matched, detail),
            problems.problem("counters-unmatched", source.unmatched, nothing),
            _disagreement(compared),
        ]
    )


def _family(name: str, group: pd.DataFrame, busy_ns: int) -> dict[str, object]:
    row: dict[str, object] = {
        "family": name,
        "kernels": len(group),
        "share": float(group["busy_ns"].sum() / max(busy_ns, 1)),
    }
    for quantity in _QUANTITIES:
        counted, measured = group[f"counted_{quantity}"].to_numpy(), group[f"measured_{quantity}"].to_numpy()
        ratio = measured[counted > 0] / counted[counted > 0]
        ratio = ratio[np.isfinite(ratio)]
        low, median, high = np.quantile(ratio, (0.1, 0.5, 0.9)) if len(ratio) else (np.nan,) * 3
        row |= {f"counted_{quantity}": _total(counted), f"measured_{quantity}": _total(measured)}
        row |= {f"{quantity}_ratio": median, f"{quantity}_ratio_p10": low, f"{quantity}_ratio_p90": high}
    return row


def _total(values: Floats) -> float:
    """Return the sum of the known values; NaN if none is known."""
    return float(np.nansum(values)) if np.isfinite(values).any() else float("nan")


def _disagreement(compared: pd.DataFrame) -> Problem:
    notable = compared[compared["share"] >= _NOTABLE]
    far = [
        f"{quantity if quantity == 'bytes' else 'FLOPs'} of {family} × {ratio:.2g}"
        for quantity in _QUANTITIES
        for family, ratio in zip(notable["family"], notable[f"{quantity}_ratio"], strict=True)
        if ratio > _FAR or ratio < 1 / _FAR
    ]
    return problems.problem("counters-disagree", len(far), ", ".join(far))
