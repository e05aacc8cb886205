"""Finds what a training job loses to stragglers, by replaying it with ideal durations.

The ideal duration of a computation is the mean over all operations of its type, that of a transfer the median; a
transfer begins when the last of its workers is ready. The slowdown is the time of the replay with the recorded
durations divided by that with the ideal ones: of the job, or of a part that alone keeps its recorded durations.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Floats
from tracekit.analyzers.ranks.operations import BACKWARD, COMPUTED, FORWARD, KINDS, Operations
from tracekit.analyzers.ranks.schedule import Schedule, ideal_durations, meetings, own_durations, scheduled
from tracekit.analyzers.ranks.tables import REPLAYED_PARTS, REPLAYED_STEPS, REPLAYED_WORKERS
from tracekit.analyzers.trace import problems

Rows = npt.NDArray[np.bool_]

_SLOWEST = 0.03
"""Fraction of the workers that are replaced together."""
_AS_SLOW = 0.5
"""A worker of these is named if its slowdown, less 1, is at least this fraction of the slowest worker's."""
_CELLS = 16_000_000
"""Durations that are replayed at once."""
_MOST_REPLAYED = 300_000_000
"""Most operations that are replayed to attribute the slowdown; of a larger job, evenly spaced steps are."""
_LEAST_SHARE = 0.9
"""A replay of less than this share of the recorded time, or as much above it, is a problem."""


@dataclass(frozen=True)
class Remedy:
    """The gain if some operations had the ideal durations."""

    of: str
    """workers or stage"""
    number: int
    """The stage; -1: workers."""
    workers: tuple[int, ...]
    """Those that are named, as rows of the table `workers`."""
    recovered: float
    """Fraction of the time lost to stragglers that is recovered. It exceeds 1 if the rest is faster than the ideal."""
    speedup: float


@dataclass(frozen=True)
class ReplayedJob:
    """What a job loses to stragglers. Times are ns per step."""

    operations: int
    recorded_ns: float
    replayed_ns: float
    ideal_ns: float
    remedies: tuple[Remedy, ...]
    """Those of the slowest workers and of the slowest stage, the larger gain first."""
    batches: float
    """Correlation of the forward and backward times of a micro-batch; NaN: these vary too little to tell."""
    attributed_steps: int
    workers: pd.DataFrame = field(repr=False)
    parts: pd.DataFrame = field(repr=False)
    by_step: pd.DataFrame = field(repr=False)
    problems: pd.DataFrame = field(repr=False)

    @property
    def slowdown(self) -> float:
        return self.replayed_ns / self.ideal_ns if self.ideal_ns else 1.0


@dataclass(frozen=True, eq=False)
class _Replay:
    """The operations of some steps, with their own and their ideal durations."""

    operations: Operations
    schedule: Schedule
    own: Floats
    ideal: Floats

    def steps_ns(self, kept: list[Rows]) -> Floats:
        """Return the time of each step (rows) for each replay (columns) in which only the rows `kept` keep their own
        durations."""
        once = max(1, _CELLS // len(self.own))
        return np.concatenate([self._ended(kept[at : at + once]) for at in range(0, len(kept), once)], axis=1)

    def _ended(self, kept: list[Rows]) -> Floats:
        duration = np.where(np.stack(kept, axis=1), self.own[:, None], self.ideal[:, None])
        step = self.operations.table["step"].to_numpy()
        order = np.argsort(step, kind="stable")
        ends = self.schedule.ends(duration)[order]
        return np.maximum.reduceat(ends, np.flatnonzero(np.diff(step[order], prepend=-1)), axis=0)

    def slowdowns(self, kept: list[Rows]) -> Floats:
        nothing = np.zeros(len(self.own), dtype=bool)
        means = self.steps_ns([nothing, *kept]).mean(axis=0)
        return means[1:] / max(means[0], 1.0)


def replay(operations: Operations) -> ReplayedJob:
    """Raises InputError if no step can be replayed."""
    whole, notes = _prepared(operations)
    everything = np.ones(len(whole.own), dtype=bool)
    times = whole.steps_ns([everything, ~everything])
    recorded = whole.operations.table.groupby("step").agg(start=("start", "min"), end=("end", "max"))
    recorded_ns = (recorded["end"] - recorded["start"]).to_numpy()
    part = _sampled(whole)
    parts = _parts(part)
    workers = _workers(part, parts)
    share = float(times[:, 0].sum() / max(recorded_ns.sum(), 1.0))
    unlike = problems.problem("replay-unlike", int(abs(share - 1) > 1 - _LEAST_SHARE), f"{share:.0%}")
    return ReplayedJob(
        operations=len(whole.own),
        recorded_ns=float(recorded_ns.mean()),
        replayed_ns=float(times[:, 0].mean()),
        ideal_ns=float(times[:, 1].mean()),
        remedies=_remedies(part, parts, workers),
        batches=_same_batches(whole),
        attributed_steps=len(part.operations.steps),
        workers=workers.drop(columns="at"),
        parts=parts,
        by_step=_steps_replayed(whole, recorded_ns, times),
        problems=problems.concat(operations.problems, notes, problems.table([unlike])),
    )


def _steps_replayed(whole: _Replay, recorded_ns: Floats, times: Floats) -> pd.DataFrame:
    return REPLAYED_STEPS.frame(
        {
            "step": whole.operations.steps,
            "recorded_ns": recorded_ns,
            "replayed_ns": times[:, 0],
            "ideal_ns": times[:, 1],
            "slowdown": times[:, 0] / np.maximum(times[:, 1], 1.0),
        }
    )


def _prepared(operations: Operations) -> tuple[_Replay, pd.DataFrame]:
    """Return the replay of all steps whose operations do not wait for themselves, and what is wrong with them."""
    meeting = meetings(operations)
    schedule = scheduled(operations, meeting)
    circular = np.unique(operations.table["step"].to_numpy()[schedule.contradictory])
    if len(circular):
        operations = operations.of_steps(np.setdiff1d(np.arange(len(operations.steps)), circular))
        meeting = meetings(operations)
        schedule = scheduled(operations, meeting)
    own, unpaired = own_durations(operations, meeting)
    rows = [
        problems.problem("operations-circular", len(circular)),
        problems.problem("operations-unpaired", unpaired),
    ]
    return _Replay(operations, schedule, own, ideal_durations(operations, own)), problems.table(rows)


def _sampled(whole: _Replay) -> _Replay:
    """Return the replay of as many evenly spaced steps as can be replayed once for each part."""
    workers = whole.operations.workers
    replays = len(workers["dp_rank"].unique()) + len(workers["stage"].unique()) + len(KINDS)
    steps = len(whole.operations.steps)
    most = max(1, _MOST_REPLAYED * steps // (len(whole.own) * replays))
    if most >= steps:
        return whole
    chosen = np.unique(np.linspace(0, steps - 1, most).astype(np.int64))
    kept = np.isin(whole.operations.table["step"].to_numpy(), chosen)
    operations = whole.operations.of_steps(chosen)
    return _Replay(operations, scheduled(operations, meetings(operations)), whole.own[kept], whole.ideal[kept])


def _parts(part: _Replay) -> pd.DataFrame:
    """Return the slowdown of each type of operation, stage and data-parallel rank."""
    place = part.operations.workers.iloc[part.operations.table["worker"].to_numpy()]
    kinds: dict[str, list[str]] = {}
    for kind in KINDS:
        kinds.setdefault(kind.replace("-send", "-transfer").replace("-recv", "-transfer"), []).append(kind)
    sets = [("operation", name, part.operations.of(*each)) for name, each in kinds.items()]
    for of in ("stage", "dp_rank"):
        of_row = place[of].to_numpy()
        sets += [(of, str(number), of_row == number) for number in np.unique(of_row)]
    sets = [each for each in sets if each[2].any()]
    ideal = [part.ideal[rows] for _, _, rows in sets]
    frame = REPLAYED_PARTS.frame(
        {
            "of": [of for of, _, _ in sets],
            "name": [name for _, name, _ in sets],
            "count": [int(rows.sum()) for _, _, rows in sets],
            "ideal_ns": [float(each[0]) if (each == each[0]).all() else np.nan for each in ideal],
            "slowdown": part.slowdowns([rows for _, _, rows in sets]),
        }
    )
    return frame.sort_values(["of", "slowdown"], ascending=[True, False], kind="stable", ignore_index=True)


def _workers(part: _Replay, parts: pd.DataFrame) -> pd.DataFrame:
    workers = part.operations.workers
    slow = {of: rows.set_index("name")["slowdown"] for of, rows in parts.groupby("of")}
    each = [workers[of].astype(str).map(slow[of]).to_numpy(float) for of in ("dp_rank", "stage")]
    table = part.operations.table["worker"].to_numpy()
    computed = np.bincount(table, part.own * part.operations.of(*COMPUTED), minlength=len(workers))
    typical = pd.Series(computed).groupby(workers["stage"].to_numpy()).transform("mean").to_numpy()
    frame = REPLAYED_WORKERS.frame(
        {
            "rank": workers["rank"] if "rank" in workers else np.full(len(workers), -1),
            "dp_rank": workers["dp_rank"],
            "stage": workers["stage"],
            "slowdown": np.minimum(*each),
            "compute": computed / np.maximum(typical, 1.0),
            "slowest": False,
        }
    ).assign(at=np.arange(len(workers)))
    frame = frame.sort_values(["slowdown", "compute"], ascending=False, kind="stable", ignore_index=True)
    return frame.assign(slowest=np.arange(len(frame)) < np.ceil(_SLOWEST * len(frame)))


def _remedies(part: _Replay, parts: pd.DataFrame, workers: pd.DataFrame) -> tuple[Remedy, ...]:
    """Return the gains if the slowest workers, or the slowest stage, had the ideal durations."""
    stages = parts[parts["of"] == "stage"]
    stage = int(stages["name"].iloc[0])
    worker = part.operations.table["worker"].to_numpy()
    slow = np.isin(worker, workers["at"][workers["slowest"]])
    of_stage = part.operations.workers["stage"].to_numpy()[worker] == stage
    everything = np.ones(len(worker), dtype=bool)
    sets = [everything, ~everything, ~slow, *([~of_stage] if len(stages) > 1 else [])]
    now, ideal, *mended = part.steps_ns(sets).mean(axis=0).tolist()
    least = 1 + _AS_SLOW * (workers["slowdown"].iloc[0] - 1)
    named = [
        ("workers", -1, workers["slowest"] & (workers["slowdown"] >= least)),
        ("stage", stage, workers["stage"] == stage),
    ]
    remedies = []
    for (of, number, who), then in zip(named, mended, strict=False):
        recovered = (now - then) / (now - ideal) if now > ideal else 0.0
        remedies.append(Remedy(of, number, tuple(np.flatnonzero(who).tolist()), recovered, now / max(then, 1.0)))
    return tuple(sorted(remedies, key=lambda each: -each.recovered))


_LEAST_SPREAD = 0.05
"""Micro-batches whose computation varies by less, as a fraction of the mean, are alike."""


def _same_batches(whole: _Replay) -> float:
    """Return the correlation over micro-batches of forward and backward times, relative to those of the same stage."""
    table = whole.operations.table.assign(own=whole.own)
    both = []
    for kind in (FORWARD, BACKWARD):
        rows = table[whole.operations.of(kind)]
        by = [rows["gmc"], whole.operations.workers["stage"].to_numpy()[rows["worker"]]]
        ratio = rows["own"] / rows["own"].groupby(by).transform("mean")
        order = rows.groupby(["worker", "step", "gmc"]).cumcount()
        both.append(rows[["worker", "step", "gmc"]].assign(order=order, ratio=ratio))
    pairs = both[0].merge(both[1], on=["worker", "step", "gmc", "order"])
    forward, backward = pairs["ratio_x"], pairs["ratio_y"]
    if len(pairs) < 3 or min(forward.std(), backward.std()) < _LEAST_SPREAD:
        return float("nan")
    return float(forward.corr(backward))
