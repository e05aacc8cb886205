"""The program of a job's ranks: their own time up to each collective, and the ends of their steps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Bools, Floats, InputError, Ints
from tracekit.analyzers.ranks.clocks import Clocks
from tracekit.analyzers.ranks.summary import RankSummary


@dataclass(frozen=True, eq=False)
class StepWindows:
    first: list[int]
    """The step of each rank that is the job's step 0."""
    steps: int
    start: Floats
    """Start of each rank's first step."""
    end: Floats
    """End of each step, as ranks × steps."""
    own_first: Floats
    own_step: Floats
    """Own time until the end of each step, as ranks × steps."""
    device_first: Floats
    device_step: Floats
    synced: Floats
    """As in RANK_STEPS, as ranks × steps."""

    def numbered(self, calls: pd.DataFrame) -> pd.DataFrame:
        """Return the calls in these steps, with the job's number of their step."""
        step = calls["step"].to_numpy() - np.asarray(self.first)[calls["rank"].to_numpy()]
        inside = (calls["step"].to_numpy() >= 0) & (step >= 0) & (step < self.steps)
        return calls.assign(step=np.where(inside, step, -1))[inside].reset_index(drop=True)


def windows(ranks: Sequence[RankSummary], calls: pd.DataFrame, clocks: Clocks) -> StepWindows:
    """Find the common steps from matched `calls`. A collective belongs to the same step of the job on all ranks,
    however they number it.

    Raises InputError if the ranks have no step in common.
    """
    first = _first_steps(len(ranks), calls)
    steps = min((len(rank.steps) - at for rank, at in zip(ranks, first, strict=True)), default=0)
    if steps < 1:
        raise InputError(
            "The traces have no step in common.",
            "Some traces contain no steps, or they were recorded at different times.",
            "Record the same steps on all ranks.",
        )
    rows = [rank.steps.iloc[at : at + steps] for rank, at in zip(ranks, first, strict=True)]
    begin = np.array([table["start_ns"] + rank.base_ns for table, rank in zip(rows, ranks, strict=True)])
    end = begin + np.array([table["wall_ns"] for table in rows])
    number = np.arange(len(ranks))
    return StepWindows(
        first,
        steps,
        clocks.corrected(number, begin[:, 0]),
        np.stack([clocks.corrected(number, end[:, step]) for step in range(steps)], axis=1),
        np.array([table["own_start_ns"].iloc[0] for table in rows], dtype=float),
        np.array([table["own_end_ns"] for table in rows], dtype=float),
        np.array([table["device_start_ns"].iloc[0] for table in rows], dtype=float),
        np.array([table["device_end_ns"] for table in rows], dtype=float),
        np.array([table["synced_ns"] for table in rows], dtype=float),
    )


def _first_steps(ranks: int, calls: pd.DataFrame) -> list[int]:
    """Return the number of steps that each rank recorded before the last one began."""
    inside = calls[calls["step"] >= 0]
    usual = inside.groupby("call")["step"].transform("median")
    ahead = (inside["step"] - usual).groupby(inside["rank"]).median().reindex(range(ranks)).fillna(0.0)
    return (ahead - ahead.min()).round().astype(int).tolist()


@dataclass(frozen=True, eq=False)
class Pace:
    """Own times of the ranks from the start of each rank's first step to several points, in ns."""

    own: Floats
    """Own time of the rank."""
    device: Floats
    """Time that its device takes if the host is never late."""

    def shifted(self, own: Floats, device: Floats) -> "Pace":
        """Return the pace with these times subtracted. The device's time stays at most the rank's."""
        device = self.device - device
        return Pace(np.maximum(self.own - own, device), device)


@dataclass(frozen=True, eq=False)
class Program:
    """The calls of all ranks in order of rank and time, one element per call in every array. Times are in ns."""

    rank: Ints
    call: Ints
    step: Ints
    stream: Ints
    start: Pace
    end: Pace
    synced: Floats
    """Own time beyond the device's at the host's last wait for the device since the previous call; NaN: no wait."""
    blocks: Bools
    kind: npt.NDArray
    """The kind of each call. For a send or receive, it includes the direction, in which the stages of a pipeline
    differ."""
    transfer: Floats
    """Transfer time of each call of the job."""
    order: Ints
    """The calls of the job in order of time."""
    begin: Floats
    """Start of each rank's first step, on the job's clock."""
    step_end: Pace
    """Time until the end of each step, as ranks × steps."""
    step_synced: Floats
    """Like `synced`, since the step's last call, as ranks × steps."""
    step_at: Ints
    """For each step, the number of the job's calls, in order, before its end."""

    @property
    def ranks(self) -> int:
        return len(self.begin)

    def rows_of(self, rank: int) -> slice:
        return slice(*np.searchsorted(self.rank, [rank, rank + 1]))

    def same_calls(self, rank: int, other: int) -> bool:
        """Return whether two ranks make calls of the same kinds in the same order."""
        return np.array_equal(self.kind[self.rows_of(rank)], self.kind[self.rows_of(other)])

    def like(self, rank: int, peer: int) -> "Program":
        """Return the program in which `rank` takes the own time of its peer, which makes the same calls."""
        mine, other = self.rows_of(rank), self.rows_of(peer)

        def taken(of: Floats) -> Floats:
            of = of.copy()
            of[mine] = of[other]
            return of

        def of_steps(of: Floats) -> Floats:
            of = of.copy()
            of[rank] = of[peer]
            return of

        begin = self.begin.copy()
        begin[rank] = min(begin[rank], begin[peer])
        return replace(
            self,
            start=Pace(taken(self.start.own), taken(self.start.device)),
            end=Pace(taken(self.end.own), taken(self.end.device)),
            synced=taken(self.synced),
            begin=begin,
            step_end=Pace(of_steps(self.step_end.own), of_steps(self.step_end.device)),
            step_synced=of_steps(self.step_synced),
        )

    def never_late(self) -> "Program":
        """Return the program in which no device waits for its host's launches."""
        in_time = (np.where(np.isnan(behind), np.nan, 0.0) for behind in (self.synced, self.step_synced))
        start, end, step_end = (Pace(each.device, each.device) for each in (self.start, self.end, self.step_end))
        synced, step_synced = in_time
        return replace(self, start=start, end=end, step_end=step_end, synced=synced, step_synced=step_synced)

    def lighter(self, rank: int, saved: Floats, *, on_device: bool) -> "Program":
        """Return the program in which `rank` takes `saved` ns less in each step, by its device's work or its host's."""
        of_all = np.zeros_like(self.step_end.own)
        of_all[rank] = saved
        return self.with_less(of_all, on_device=on_device)

    def with_less(self, saved: Floats, *, on_device: bool) -> "Program":
        """Return the program in which the ranks take `saved` ns less (ranks × steps), for device work or host work.

        The host's time is saved at the start of a step, and the device's evenly within it.
        """
        rank, step = self.rank, self.step
        total = self.step_end.own
        before = np.cumsum(saved, axis=1) - saved
        first = np.concatenate([np.zeros((self.ranks, 1)), total[:, :-1]], axis=1)
        length = np.maximum(total - first, 1.0)[rank, step]

        def taken(own: Floats) -> Floats:
            part = np.clip((own - first[rank, step]) / length, 0.0, 1.0) if on_device else 1.0
            return before[rank, step] + saved[rank, step] * part

        off_start, off_end = taken(self.start.own), taken(self.end.own)
        steps = before + saved
        on = float(on_device)
        return replace(
            self,
            start=self.start.shifted(off_start, on * off_start),
            end=self.end.shifted(off_end, on * off_end),
            synced=np.maximum(self.synced - (1 - on) * off_start, 0.0),
            step_end=self.step_end.shifted(steps, on * steps),
            step_synced=np.maximum(self.step_synced - (1 - on) * steps, 0.0),
        )


def program(calls: pd.DataFrame, at: StepWindows) -> Program:
    """Build the program from `calls`, as `clocks.arrivals` returns them, in the steps `at`."""
    calls = calls.sort_values(["rank", "start_ns"], kind="stable")
    order = calls.groupby("call")["arrival"].max().sort_values(kind="stable")
    transfer = np.zeros(int(calls["call"].max()) + 1 if len(calls) else 0)
    transfer[order.index] = calls.groupby("call")["transfer"].min()[order.index]
    rank = calls["rank"].to_numpy()
    lead = at.own_first - at.device_first

    def pace(edge: str) -> Pace:
        own, device = (calls[f"{of}_{edge}_ns"].to_numpy() for of in ("own", "device"))
        return Pace(own - at.own_first[rank], device - at.device_first[rank])

    synced = calls["synced_ns"].to_numpy()
    return Program(
        rank=rank,
        call=calls["call"].to_numpy(),
        step=calls["step"].to_numpy(),
        stream=calls.groupby(["rank", "stream"]).ngroup().to_numpy().astype(np.int64),
        start=pace("start"),
        end=pace("end"),
        synced=np.where(synced < 0, np.nan, synced - lead[rank]),
        blocks=calls["blocks"].to_numpy(),
        kind=_kinds(calls),
        transfer=transfer,
        order=order.index.to_numpy(),
        begin=at.start,
        step_end=Pace(at.own_step - at.own_first[:, None], at.device_step - at.device_first[:, None]),
        step_synced=np.where(at.synced < 0, np.nan, at.synced - lead[:, None]),
        step_at=np.searchsorted(order.to_numpy(), at.end.max(axis=0)),
    )


def _kinds(calls: pd.DataFrame) -> npt.NDArray:
    source, target = calls["source"].to_numpy(), calls["target"].to_numpy()
    sends = calls["peer"].to_numpy() == target
    way = np.where(sends, "to ", "from ") + np.where((source < target) == sends, "later", "earlier").astype(object)
    return np.where(source >= 0, way, calls["kind"].to_numpy(dtype=object)).astype(str)
