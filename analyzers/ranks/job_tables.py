"""The tables of a job: its ranks, its collectives and its groups."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Floats
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.ranks.aligned import AlignedRanks
from tracekit.analyzers.ranks.matching import Group
from tracekit.analyzers.ranks.result import bus_factor, link_bytes
from tracekit.analyzers.ranks.stragglers import Costs
from tracekit.analyzers.ranks.tables import COLLECTIVES, GROUP_WAITS, GROUPS, RANK_BY_STEP, RANKS

_TIMES = ("wall_ns", "compute_ns", "communication_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
_LISTED = 8


def rank_by_step_table(job: AlignedRanks) -> pd.DataFrame:
    """Return RANK_BY_STEP, in order of rank and step."""
    ranks, steps = len(job.ranks), job.steps
    rows = [rank.steps.iloc[first : first + steps] for rank, first in zip(job.ranks, job.windows.first, strict=True)]
    place = job.calls["rank"].to_numpy() * steps + job.calls["step"].to_numpy()
    sums = {name: np.bincount(place, job.calls[name], ranks * steps) for name in ("imposed", "wait")}
    return RANK_BY_STEP.frame(
        {
            "rank": np.repeat(np.asarray(job.numbers), steps),
            "step": np.tile(np.arange(steps), ranks),
            **{name: np.concatenate([table[name] for table in rows]) for name in _TIMES},
            "own_ns": job.own.own.ravel(),
            "imposed_ns": sums["imposed"],
            "waiting_ns": sums["wait"],
        }
    )


def ranks_table(job: AlignedRanks, cost: Costs) -> pd.DataFrame:
    """Return RANKS, in order of rank."""
    means = rank_by_step_table(job).groupby("rank", sort=False).mean()
    shares = {each.rank: each.share.expected for each in (*cost.of, *cost.named)}
    hidden = means["communication_ns"] - means["exposed_communication_ns"]
    return RANKS.frame(
        {
            "rank": np.asarray(job.numbers),
            "host": np.asarray(job.hosts),
            "steps": np.full(len(job.ranks), job.steps),
            **{name: means[name] for name in (*_TIMES, "own_ns", "imposed_ns", "waiting_ns")},
            "overlap": hidden / means["communication_ns"].where(means["communication_ns"] > 0),
            "cost_share": [shares.get(position, 0.0) for position in range(len(job.ranks))],
            "clock_offset_ns": np.round(job.clocks.offset_ns).astype(np.int64),
            "clock_drift_ppm": job.clocks.drift * 1e6,
        }
    )


def collectives_table(
    calls: pd.DataFrame, groups: tuple[Group, ...], numbers: Sequence[int], hosts: npt.NDArray, gpu: GPU | None
) -> pd.DataFrame:
    """Return COLLECTIVES in order of time, with `call`, the number of each in `calls`."""
    by = calls.groupby("call")
    first, last = by.first(), calls.loc[by["arrival"].idxmax()].set_index("call")
    size, sent = by.size(), by["bytes"].max()
    transfer = by["transfer"].min()
    beside = np.minimum(calls["beside_ns"], transfer.loc[calls["call"]].to_numpy()).groupby(calls["call"]).mean()
    whole = np.array([len(group.ranks) for group in groups])[first["group"].to_numpy(dtype=np.int64)]
    whole = np.where(first["source"] >= 0, 2, whole)
    rate = (sent / (transfer / 1e9)).where((sent > 0) & (transfer > 0) & (size == whole) & (size > 1))
    bus = rate * bus_factor(first["kind"].to_numpy(), whole)
    links = np.array([link_bytes(gpu, len(group.ranks), hosts_of(group, hosts)) for group in groups])
    table = pd.DataFrame(
        {
            "call": size.index,
            "group": first["group"],
            "sequence": np.where(
                first["sequence"] >= 0, first["sequence"], first.groupby(["group", "kind"]).cumcount()
            ),
            "kind": first["kind"].astype(object),
            "step": by["step"].min(),
            "ranks": size,
            "bytes": sent,
            "start_ns": by["arrival"].min().round(),
            "end_ns": first["end"].round(),
            "skew_ns": (by["arrival"].max() - by["arrival"].min()).round(),
            "wait_ns": by["wait"].sum().round(),
            "transfer_ns": transfer.round(),
            "last_rank": np.asarray(numbers)[last["rank"].to_numpy(dtype=np.int64)],
            "overlap": beside / transfer.where(transfer > 0),
            "algorithm_bandwidth": rate,
            "bus_bandwidth": bus,
            "roof_fraction": bus / links[first["group"].to_numpy(dtype=np.int64)] if len(links) else bus,
        }
    ).sort_values("start_ns", kind="stable", ignore_index=True)
    declared = COLLECTIVES.frame({column.name: table[column.name] for column in COLLECTIVES.columns})
    return declared.assign(call=table["call"].to_numpy())


def hosts_of(group: Group, hosts: npt.NDArray) -> int:
    """Return the number of hosts of a group; 0 if unknown."""
    on = hosts[list(group.traced)]
    return 0 if (on < 0).any() or len(group.traced) < len(group.ranks) else len(np.unique(on))


def groups_table(job: AlignedRanks, collectives: pd.DataFrame) -> pd.DataFrame:
    """Return GROUPS for the groups with calls."""
    rows, steps = [], job.steps
    for number, group in enumerate(job.matched.groups):
        mine, one = collectives[collectives["group"] == number], job.calls[job.calls["group"] == number]
        if one.empty:
            continue
        first = one[one["rank"] == one["rank"].iloc[0]]
        kind = job.parallelisms[number]
        time = mine.loc[mine["bus_bandwidth"].notna(), "transfer_ns"].sum()
        carried = (mine["bus_bandwidth"] * mine["transfer_ns"]).sum()
        rows.append(
            {
                "name": group.name,
                "size": len(group.ranks),
                "traced": len(group.traced),
                "ranks": listed(group.ranks),
                "parallelism": kind,
                "calls": len(mine),
                "bytes": int(first["bytes"].sum() / max(1, steps)),
                "wait_ns": one["wait"].sum() / max(1, steps) / len(group.traced),
                "transfer_ns": mine["transfer_ns"].sum() / max(1, steps),
                "bus_bandwidth": carried / time if time else float("nan"),
                **group_facts(one, kind, job.own.own[list(group.traced)]),
            }
        )
    return GROUPS.frame({column.name: [row[column.name] for row in rows] for column in GROUPS.columns})


def group_waits_table(job: AlignedRanks) -> pd.DataFrame:
    """Return GROUP_WAITS, in order of group and rank."""
    sums = job.calls.groupby(["group", "rank"])[["wait", "imposed"]].sum() / max(1, job.steps)
    group, rank = (sums.index.get_level_values(name).to_numpy(dtype=np.int64) for name in ("group", "rank"))
    return GROUP_WAITS.frame(
        {
            "group": np.array([each.name for each in job.matched.groups], dtype=object)[group],
            "rank": np.asarray(job.numbers)[rank],
            "waiting_ns": sums["wait"],
            "imposed_ns": sums["imposed"],
        }
    )


def listed(ranks: Sequence[int]) -> str:
    """Return ranks as text: 0–7 for consecutive ones, 0, 8, 16, ... for others."""
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}–{ranks[-1]}"
    return ", ".join(map(str, ranks[:_LISTED])) + (", ..." if len(ranks) > _LISTED else "")


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
