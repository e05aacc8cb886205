"""Jobs of many ranks, generated from the summary of one recorded rank, with planted faults: how many are named right.

    python -m benchmarks ranks.generated_jobs TRACE ... --jobs 200

A job repeats the steps of the recorded rank on 8 to 64 ranks. Every rank's own time varies at random, every host has a
clock of its own with offset and drift, ends of collectives jitter, and at most one rank has a fault. Who
waits for whom is computed here, call by call, and not by the simulator of the analysis.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from tracekit.analyzers.ranks import Job, RankSummary, analyze_ranks, summarize
from tracekit.analyzers.ranks.tables import RANK_CALLS, RANK_IDLE, RANK_STEPS
from tracekit.analyzers.trace import ProcessGroup, reading

STEPS, RANKS_OF_A_HOST = 8, 8
FAULTS = (
    *("healthy", "slower device", "more work", "host", "data loading", "garbage collection", "slow link"),
    *("missing call", "uneven size"),
)
NOISE, RANK_NOISE, JITTER_NS = 0.02, 0.005, 3_000.0
OFFSET_NS, DRIFT = 50e6, 40e-6
_IDLE_CAUSE = {"host": "dispatch", "data loading": "data-loading", "garbage collection": "garbage-collection"}
_CLOCKS = ("own_start_ns", "own_end_ns", "device_start_ns", "device_end_ns")
_GROUP = "group"
_EPOCH_NS = 1_700_000_000_000_000_000


@dataclass(frozen=True)
class Planted:
    """The fault of a job: its kind, its rank, and the growth of that rank's own time."""

    fault: str
    rank: int
    factor: float


@dataclass(frozen=True)
class Pattern:
    """A step of the recorded rank, call by call: own time before and during each, and its transfer."""

    before: np.ndarray
    during: np.ndarray
    transfer: np.ndarray
    tail: float
    calls: pd.DataFrame
    compute_part: float


def pattern(base: RankSummary) -> Pattern:
    """The step with the most calls."""
    counts = base.calls[base.calls["step"] >= 0].groupby("step").size()
    step = int(counts.idxmax())
    calls = base.calls[base.calls["step"] == step].sort_values("start_ns")
    row = base.steps[base.steps["step"] == step].iloc[0]
    before = np.diff(calls["own_start_ns"], prepend=0) - np.r_[0, (calls["own_end_ns"] - calls["own_start_ns"])[:-1]]
    before[0] = max(calls["own_start_ns"].iloc[0] - row["own_start_ns"], 0)
    during = (calls["own_end_ns"] - calls["own_start_ns"]).to_numpy(float)
    transfer = np.minimum((calls["end_ns"] - calls["start_ns"]).to_numpy(float), 0.05 * row["wall_ns"])
    own = max(float(row["wall_ns"] - row["exposed_communication_ns"]), 1.0)
    tail = max(float(row["own_end_ns"] - calls["own_end_ns"].iloc[-1]), 0.0)
    return Pattern(
        np.maximum(before, 0.0), np.minimum(during, transfer), transfer, tail, calls, row["compute_ns"] / own
    )


def planted(random: np.random.Generator, ranks: int, fault: str) -> Planted:
    return Planted(fault, int(random.integers(ranks)), float(random.uniform(0.12, 0.5)))


def generate(base: RankSummary, ranks: int, fault: Planted, random: np.random.Generator) -> list[RankSummary]:
    """The summaries of the job's ranks. All ranks make each call together; with a slow link, half of them in fours."""
    shape = pattern(base)
    extra = _extra(shape, ranks, fault, random)
    members = _groups(len(shape.transfer), ranks, fault.fault == "slow link")
    times = _run(shape, ranks, fault, extra, members, random)
    hosts = (ranks - 1) // RANKS_OF_A_HOST + 1
    ahead, drift = random.uniform(-OFFSET_NS, OFFSET_NS, hosts), random.uniform(-DRIFT, DRIFT, hosts)
    return [_summary(base, shape, rank, ranks, fault, extra, members, times, ahead, drift) for rank in range(ranks)]


def _extra(shape: Pattern, ranks: int, fault: Planted, random: np.random.Generator) -> np.ndarray:
    """Ranks × steps × (calls + 1): own time before each call and after the last, with what the fault adds."""
    own = np.append(shape.before + shape.during, shape.tail)
    times = own * random.lognormal(0, NOISE, (ranks, STEPS, len(own))) * random.normal(1, RANK_NOISE, (ranks, 1, 1))
    more = fault.factor * own.sum()
    if fault.fault in ("slower device", "more work"):
        times[fault.rank] *= 1 + fault.factor
    if fault.fault == "host":
        times[fault.rank] += more / len(own)
    if fault.fault == "data loading":
        times[fault.rank, :, 0] += more
    if fault.fault == "garbage collection":
        times[fault.rank, np.arange(STEPS), random.integers(len(own), size=STEPS)] += more
    return times


def _groups(calls: int, ranks: int, inside_hosts: bool) -> list[list[np.ndarray]]:
    """Per call of a step, the sets of ranks that make it together."""
    everyone, halves = [np.arange(ranks)], np.array_split(np.arange(ranks), max(ranks // 4, 1))
    return [list(halves) if inside_hosts and call % 2 == 0 else everyone for call in range(calls)]


def _run(
    shape: Pattern,
    ranks: int,
    fault: Planted,
    extra: np.ndarray,
    members: list[list[np.ndarray]],
    random: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Starts and ends of the calls and steps of all ranks, on one true clock, in ns."""
    now = np.full(ranks, 1e6)
    start, end = (np.zeros((ranks, STEPS, len(members))) for _ in range(2))
    begin, stop = (np.zeros((ranks, STEPS)) for _ in range(2))
    for step in range(STEPS):
        begin[:, step] = now
        for call, groups in enumerate(members):
            now = now + extra[:, step, call]
            start[:, step, call] = now
            for group in groups:
                slow = fault.fault == "slow link" and fault.rank in group and len(groups) > 1
                took = max(shape.transfer[call], 20e3) * (2.5 if slow else 1.0) * random.lognormal(0, NOISE)
                now[group] = now[group].max() + took
            end[:, step, call] = now + np.abs(random.normal(0, JITTER_NS, ranks))
        now = now + extra[:, step, -1]
        stop[:, step] = now
    return {"start": start, "end": end, "begin": begin, "stop": stop}


def _summary(
    base: RankSummary,
    shape: Pattern,
    rank: int,
    ranks: int,
    fault: Planted,
    extra: np.ndarray,
    members: list[list[np.ndarray]],
    times: dict[str, np.ndarray],
    ahead: np.ndarray,
    drift: np.ndarray,
) -> RankSummary:
    host, mine = rank // RANKS_OF_A_HOST, fault.rank == rank
    clock = {name: (t[rank] * (1 + drift[host]) + ahead[host]) for name, t in times.items()}
    first = clock["begin"][0]
    local = {name: np.round(t - first).astype(np.int64) for name, t in clock.items()}
    own = extra[rank].cumsum(axis=1) + np.r_[0, extra[rank].sum(axis=1)[:-1]].cumsum()[:, None]
    calls = _calls(shape, rank, fault, local, own, members)
    work = _work(base, fault, mine)
    counts = {name: np.full(STEPS, work[name].sum() / STEPS) for name in ("flops", "bytes")}
    return replace(
        base,
        rank=rank,
        world_size=ranks,
        host=f"host {host}",
        groups=_named_groups(members),
        base_ns=_EPOCH_NS + round(first),
        steps=_steps(shape, extra[rank], local, own, fault.fault if mine else "", counts),
        idle=_idle(shape, extra[rank], fault, mine),
        calls=calls,
        work=work,
        device_index=rank % RANKS_OF_A_HOST,
    )


def _named_groups(members: list[list[np.ndarray]]) -> tuple[ProcessGroup, ...]:
    sets = {tuple(group.tolist()) for groups in members for group in groups}
    return tuple(ProcessGroup(f"{_GROUP} {ranks[0]}-{ranks[-1]}", ranks) for ranks in sorted(sets))


def _calls(
    shape: Pattern, rank: int, fault: Planted, local: dict[str, np.ndarray], own: np.ndarray, members: list
) -> pd.DataFrame:
    count = len(members)
    group = [next(g for g in groups if rank in g) for groups in members]
    table = pd.DataFrame(
        {
            "step": np.repeat(np.arange(STEPS), count),
            "group": [f"{_GROUP} {g[0]}-{g[-1]}" for g in group] * STEPS,
            "sequence": np.full(STEPS * count, -1),
            **{name: np.tile(shape.calls[name].astype(object), STEPS) for name in ("name", "dtype", "phase")},
            "kind": "all-reduce",
            "bytes": np.tile(np.maximum(shape.calls["bytes"], 1 << 20), STEPS),
            "peer": -1,
            "stream": 7,
            "start_ns": local["start"].ravel(),
            "end_ns": local["end"].ravel(),
            "host_start_ns": local["start"].ravel(),
            **dict.fromkeys(_CLOCKS, own[:, :-1].ravel().round()),
            "synced_ns": -1,
            "beside_ns": 0,
            "blocks": True,
        }
    )
    table["sequence"] = table.groupby("group").cumcount()
    if fault.rank == rank and fault.fault == "missing call":
        table = table.drop(index=len(table) // 2)
    if fault.rank == rank and fault.fault == "uneven size":
        table.loc[len(table) // 2, "bytes"] += 4096
    return RANK_CALLS.frame({str(name): table[name].to_numpy() for name in table})


def _steps(
    shape: Pattern,
    extra: np.ndarray,
    local: dict[str, np.ndarray],
    own: np.ndarray,
    fault: str,
    counts: dict[str, np.ndarray],
) -> pd.DataFrame:
    total, wall = extra.sum(axis=1), local["stop"] - local["begin"]
    usual = np.append(shape.before + shape.during, shape.tail).sum()
    compute = shape.compute_part * np.where(fault in _IDLE_CAUSE, np.minimum(total, usual), total)
    if fault in ("slower device", "more work"):  # all of what grows is computation
        compute = total - (1 - shape.compute_part) * usual
    ends = own[:, -1].round().astype(np.int64)
    starts = np.r_[0, ends[:-1]]
    compute = np.minimum(compute.round().astype(np.int64), ends - starts)
    exposed = wall - (ends - starts)
    return RANK_STEPS.frame(
        {
            "step": np.arange(STEPS),
            "start_ns": local["begin"],
            "wall_ns": wall,
            "compute_ns": compute,
            "communication_ns": exposed,
            "exposed_communication_ns": exposed,
            "exposed_copy_ns": np.zeros(STEPS, dtype=np.int64),
            "idle_ns": ends - starts - compute,
            **{name: starts if "start" in name else ends for name in _CLOCKS},
            "synced_ns": np.full(STEPS, -1),
            **counts,
        }
    )


def _idle(shape: Pattern, extra: np.ndarray, fault: Planted, mine: bool) -> pd.DataFrame:
    usual = np.append(shape.before + shape.during, shape.tail).sum()
    rows = [("dispatch", np.full(STEPS, (1 - shape.compute_part) * usual))]
    if mine and fault.fault in _IDLE_CAUSE:
        rows.append((_IDLE_CAUSE[fault.fault], extra.sum(axis=1) - usual))
    return RANK_IDLE.frame(
        {
            "step": np.tile(np.arange(STEPS), len(rows)),
            "cause": np.repeat([cause for cause, _ in rows], STEPS),
            "idle_ns": np.concatenate([time for _, time in rows]).round().clip(0),
        }
    )


def _work(base: RankSummary, fault: Planted, mine: bool) -> pd.DataFrame:
    work = base.work.copy()
    factor = STEPS / max(1, len(base.steps))
    scaled = {
        name: (work[name] * factor).astype(work[name].dtype) for name in ("calls", "duration_ns", "flops", "bytes")
    }
    if mine and fault.fault in ("slower device", "more work"):
        scaled["duration_ns"] = (scaled["duration_ns"] * (1 + 2 * fault.factor)).astype(np.int64)
    if mine and fault.fault == "more work":
        scaled["calls"] = np.ceil(scaled["calls"] * (1 + fault.factor)).astype(np.int64)
        scaled["flops"] = scaled["flops"] * (1 + fault.factor)
    return work.assign(**scaled)


def verdict(job: Job, fault: Planted) -> str:
    """right, missed, or what was said instead."""
    codes, named = set(job.problems["code"]), [(each.rank, each.reason.cause) for each in job.stragglers]
    if fault.fault == "missing call":
        return "right" if "collective-missing" in codes and not named else "missed"
    if fault.fault == "uneven size":
        return "right" if "collective-uneven" in codes and not named else "missed"
    if fault.fault == "slow link":
        slow = job.slow_link
        return "right" if slow is not None and fault.rank in slow.ranks and not named else "missed"
    if fault.fault == "healthy":
        return "right" if not named and job.slow_link is None else f"false name {named}"
    return "right" if named == [(fault.rank, fault.fault)] else f"said {named}" if named else "missed"


def run_job(base: RankSummary, number: int, sizes: Sequence[int] = (8, 16, 32, 64)) -> tuple[Planted, int, str]:
    """The planted fault, the number of ranks and the verdict of the job of this number."""
    random = np.random.default_rng(number)
    ranks = int(random.choice(sizes))
    fault = planted(random, ranks, FAULTS[number % len(FAULTS)])
    job = analyze_ranks(generate(base, ranks, fault, random), range(ranks))
    return fault, ranks, verdict(job, fault)


def measure(bases: Sequence[RankSummary], jobs: int, first: int = 0) -> Counter:
    """Prints what was not named right, and returns the counts of (fault, whether it was)."""
    counts: Counter = Counter()
    for number in range(first, first + jobs):
        fault, ranks, said = run_job(bases[number // len(FAULTS) % len(bases)], number)
        counts[fault.fault, said == "right"] += 1
        if said != "right":
            print(f"job {number}: {ranks} ranks, {fault}: {said}")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="Number of the first job; it is the seed.")
    asked = parser.parse_args()
    counts = measure([summarize(reading.load(path)) for path in asked.traces], asked.jobs, asked.first)
    for fault in FAULTS:
        right, wrong = counts[fault, True], counts[fault, False]
        print(f"{fault:20} {right:4} of {right + wrong}")
    total = sum(counts[fault, True] for fault in FAULTS)
    print(f"{'all':20} {total:4} of {asked.jobs}: {100 * total / asked.jobs:.1f} %")


if __name__ == "__main__":
    main()
