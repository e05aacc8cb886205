"""Measures how much of the busy time is attributed and costed, and reports problems with the rest."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers import problems
from tracekit.analyzers.attribution.collective_messages import unknown_messages
from tracekit.analyzers.attribution.layers import Layers
from tracekit.analyzers.attribution.work_items import WorkItems
from tracekit.analyzers.breakdown.whole_steps import in_steps
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.problems import Problem
from tracekit.analyzers.results import Coverage
from tracekit.analyzers.roofline.costing import Costed
from tracekit.analyzers.roofline.roofs import Roofs

_NOTABLE = 0.05

Bools = npt.NDArray[np.bool_]


def coverage(work: pd.DataFrame) -> Coverage:
    """Return the shares of the busy time with an op, with a layer, and with FLOPs or bytes; 0 without busy time."""
    counted = np.isfinite(work["flops"].to_numpy()) | np.isfinite(work["bytes"].to_numpy())
    busy = work["busy_ns"].to_numpy()
    known = ((work["op"] >= 0).to_numpy(), (work["layer"] >= 0).to_numpy(), counted)
    op, layer, cost = (float(busy[mask].sum() / busy.sum()) if busy.sum() else 0.0 for mask in known)
    return Coverage(op, layer, cost)


def attribution_problems(host: pd.DataFrame, items: WorkItems, work: pd.DataFrame, layers: Layers) -> list[Problem]:
    """Return the problems of attribution.

    These are work without an op, CUDA graphs without their capture, launches after their work, a trace without layers,
    and collectives whose sizes or ranks are not recorded.
    """
    launch, op = work["launch"].to_numpy(), work["op"].to_numpy()
    known, by_graph = launch >= 0, (work["graph"] >= 0).to_numpy()
    unmapped = by_graph & (work["captured"] < 0).to_numpy()
    launched = host["start_ns"].to_numpy()[launch[known]]
    early = int((items.start[known] < launched).sum())
    return [
        problems.problem("no-launch", 0 if host.empty else int(((launch < 0) & (op < 0)).sum())),
        problems.problem("launch-without-op", int((known & (op < 0) & ~by_graph).sum())),
        problems.problem("graph-not-mapped", int(unmapped.sum()), f"{_share(work, unmapped):.1%}"),
        problems.problem("device-before-launch", early),
        problems.problem("no-layers", int(layers.source == "none")),
        problems.problem("collective-not-modelled", unknown_messages(host, work)),
    ]


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
