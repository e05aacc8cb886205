"""Measures how much of the busy time is attributed and costed, and reports problems with the rest."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.bound import Roofs
from tracekit.analyzers.attribute.busy_time import in_steps
from tracekit.analyzers.attribute.costing import Costed
from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.attribute.layers import Layers
from tracekit.analyzers.core import Bools, Floats
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.results import COUNTERS_COMPARISON, CounterSource, Coverage
from tracekit.analyzers.trace import Metadata, Problem, problems

_NOTABLE = 0.05


def coverage(work: pd.DataFrame) -> Coverage:
    """Return the shares of the busy time with an op, with a layer, and with FLOPs or bytes; 0 without busy time."""
    counted = np.isfinite(work["flops"].to_numpy()) | np.isfinite(work["bytes"].to_numpy())
    busy = work["busy_ns"].to_numpy()
    known = ((work["op"] >= 0).to_numpy(), (work["layer"] >= 0).to_numpy(), counted)
    op, layer, cost = (float(busy[mask].sum() / busy.sum()) if busy.sum() else 0.0 for mask in known)
    return Coverage(op, layer, cost)


def attribution_problems(
    host: Host, items: WorkItems, work: pd.DataFrame, costed: Costed, layers: Layers
) -> list[Problem]:
    """Return the problems of attribution.

    These are work without an op, CUDA graphs without their capture, launches after their work, a trace without layers,
    and collectives whose sizes or ranks are not recorded.
    """
    launch, op = work["launch"].to_numpy(), work["op"].to_numpy()
    known, by_graph = launch >= 0, (work["graph"] >= 0).to_numpy()
    unmapped = by_graph & (work["captured"] < 0).to_numpy()
    early = int((items.start[known] < host.start[launch[known]]).sum())
    return [
        problems.problem("no-launch", 0 if not len(host.start) else int(((launch < 0) & (op < 0)).sum())),
        problems.problem("launch-without-op", int((known & (op < 0) & ~by_graph).sum())),
        problems.problem("graph-not-mapped", int(unmapped.sum()), f"{_share(work, unmapped):.1%}"),
        problems.problem("device-before-launch", early),
        problems.problem("no-layers", int(layers.source == "none")),
        problems.problem("collective-not-modelled", int(costed.unknown_link.sum())),
    ]


def unrecorded_problem(host: Host, items: WorkItems, metadata: Metadata) -> Problem:
    """Return the problem that the work of a GPU is missing: calls put it there, or a GPU is listed and may have run it.

    A capture by tracekit states the device that it used.
    """
    calls = host.launches if host.launches.any() else host.of_gpus
    if items.on_device or (metadata.capture and metadata.capture.device != "cuda"):
        return problems.problem("gpu-not-seen", 0)
    if host.of_macs.any():
        return problems.problem("mps-not-recorded", int(host.of_macs.sum()))
    if calls.any():
        return problems.problem("gpu-not-recorded", int(calls.sum()))
    listed = [device.name for device in metadata.devices if device.name]
    return problems.problem("gpu-not-seen", int(bool(listed)), next(iter(listed), ""))


def roof_problems(work: pd.DataFrame, costed: Costed, roofs: Roofs, gpu: GPU | None, modelled: bool) -> list[Problem]:
    """Return the problems of work that is faster than its roof, and of estimated bytes.

    Work above its roof is explained if only the memory roof is exceeded, by no more than the traffic that the L2 cache
    can hold. Otherwise it is doubtful. A model of kernel times knows the L2 cache: its explanation is no finding.
    """
    above = (work["roof_fraction"] > 1).to_numpy()
    saved_s = gpu.l2_bytes / gpu.bandwidth if gpu else 0.0
    duration_s = work["duration_ns"].to_numpy() * 1e-9
    in_device = ~(costed.host_link | costed.peer_link)
    in_l2 = above & in_device & ~(roofs.compute_s > duration_s) & (roofs.memory_s - saved_s <= duration_s)
    doubtful = above & ~in_l2
    return [
        problems.problem("above-roof-l2", 0 if modelled else int(in_l2.sum())),
        problems.problem("above-roof", int(doubtful.sum()), _worst(work[doubtful])),
        problems.problem("estimated-bytes", int(costed.estimated.sum())),
    ]


def bound_problem(items: WorkItems, own: npt.NDArray[np.object_]) -> Problem:
    """Return the problem that at least _NOTABLE of the devices' busy time has no known bound."""
    busy = items.busy if items.on_device else np.zeros(len(own))
    share = busy[own == ""].sum() / max(busy.sum(), 1)
    return problems.problem("bound-unknown", int((own == "").sum()) if share >= _NOTABLE else 0, f"{share:.0%}")


def outside_problem(work: pd.DataFrame) -> Problem:
    """Return the problem that work outside the steps is not in the tables."""
    outside = ~in_steps(work)
    return problems.problem("work-outside-steps", int(outside.sum()), f"{_share(work, outside):.1%}")


def _share(work: pd.DataFrame, mask: Bools) -> float:
    busy = work["busy_ns"].to_numpy()
    return float(busy[mask].sum() / max(busy.sum(), 1))


def _worst(work: pd.DataFrame) -> str:
    if work.empty:
        return ""
    worst = work.iloc[int(np.argmax(work["roof_fraction"].to_numpy()))]
    return f"{worst['name']}, at {worst['roof_fraction']:.2f} of it"


_FAR = 2.0
_DIFFERENT = 0.01
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
    notable = compared[compared["share"] >= _DIFFERENT]
    far = [
        f"{quantity if quantity == 'bytes' else 'FLOPs'} of {family} × {ratio:.2g}"
        for quantity in _QUANTITIES
        for family, ratio in zip(notable["family"], notable[f"{quantity}_ratio"], strict=True)
        if ratio > _FAR or ratio < 1 / _FAR
    ]
    return problems.problem("counters-disagree", len(far), ", ".join(far))
