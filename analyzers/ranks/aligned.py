"""Aligns the traces of a job's ranks: matches collectives, aligns clocks, and finds common steps and own times."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from tracekit.analyzers.ranks.clocks import Clocks, align, arrivals, disagreeing
from tracekit.analyzers.ranks.matching import Matched, match
from tracekit.analyzers.ranks.own_parts import OwnParts, own_parts
from tracekit.analyzers.ranks.program import Program, StepWindows, program, windows
from tracekit.analyzers.ranks.summary import RankSummary

_MOST_ERROR = 0.2
"""Clocks whose error exceeds this fraction of a step cannot be compared."""


@dataclass(frozen=True, eq=False)
class AlignedRanks:
    """The ranks of a job on one clock. Tables and arrays identify a rank by its position in `ranks`."""

    ranks: Sequence[RankSummary]
    numbers: list[int]
    """The ranks' numbers in the job, in rising order."""
    hosts: list[int]
    """Number of each rank's host; -1: not recorded."""
    matched: Matched
    clocks: Clocks
    windows: StepWindows
    calls: pd.DataFrame
    """The matched calls in the common steps, as `arrivals` returns them."""
    own: OwnParts
    program: Program

    @property
    def trains(self) -> bool:
        """Whether a rank's work has a backward pass."""
        return any((rank.work["phase"] == "backward").any() for rank in self.ranks)

    @cached_property
    def parallelisms(self) -> dict[int, str]:
        """Purpose of each group with calls, by the number of the group."""
        kinds = {}
        for number, calls in self.calls.groupby("group"):
            first = calls[calls["rank"] == calls["rank"].iloc[0]]
            kinds[int(str(number))] = parallelism(first, self.steps, trains=self.trains)
        return kinds

    @property
    def steps(self) -> int:
        return self.windows.steps

    @property
    def step_ns(self) -> "np.ndarray":
        """Recorded time of each step on its last rank, from the end of the previous step to its own end; if clocks have
        nothing in common, the longest time that a rank recorded."""
        if self._clock_parts != 1:
            each = np.concatenate([self.windows.start[:, np.newaxis], self.windows.end], axis=1)
            return np.diff(each, axis=1).max(axis=0)
        return np.diff(self.windows.end.max(axis=0), prepend=self.windows.start.min())

    @property
    def _clock_parts(self) -> int:
        """Number of sets of ranks that share collectives; a rank without any is a set."""
        component = self.clocks.component
        return len(np.unique(component[component >= 0])) + int((component < 0).sum())

    @property
    def clocks_refused(self) -> str:
        """Why the clocks cannot be compared; "" if they can."""
        parts = self._clock_parts
        if parts != 1:
            return f"{parts} sets of ranks share fewer than two collectives with each other"
        step, error = float(np.median(self.step_ns)) if self.steps else 0.0, self.clocks.error_ns
        if not error <= _MOST_ERROR * step:
            return f"ends of collectives differ by {error / 1e3:,.0f} µs, and a step takes {step / 1e3:,.0f} µs"
        return ""


def aligned(ranks: Sequence[RankSummary], numbers: Sequence[int]) -> AlignedRanks:
    """Align the ranks, whose numbers in the job are `numbers`. Raises InputError if they have no step in common."""
    hosts = _host_numbers(ranks)
    matched, clocks = _matched(ranks, numbers, hosts)
    timed = arrivals(matched.calls, clocks)
    at = windows(ranks, timed, clocks)
    calls = at.numbered(timed)
    return AlignedRanks(
        ranks=ranks,
        numbers=list(numbers),
        hosts=hosts,
        matched=matched,
        clocks=clocks,
        windows=at,
        calls=calls,
        own=own_parts(ranks, at.first, at.steps),
        program=program(calls, at),
    )


def _host_numbers(ranks: Sequence[RankSummary]) -> list[int]:
    """Number the hosts in order of rank. Without recorded names, a new host begins where the GPU index decreases."""
    if all(rank.host for rank in ranks):
        order = {name: number for number, name in enumerate(dict.fromkeys(rank.host for rank in ranks))}
        return [order[rank.host] for rank in ranks]
    index = np.array([rank.device_index for rank in ranks])
    if len(index) > 1 and (index >= 0).all() and len(np.unique(index)) > 1:
        return np.cumsum(np.diff(index, prepend=index[0]) < 0).tolist()
    return [-1] * len(ranks)


def _matched(ranks: Sequence[RankSummary], numbers: Sequence[int], hosts: list[int]) -> tuple[Matched, Clocks]:
    """Match the calls and align the clocks by them.

    Calls that were matched by their order but ended at different times are removed, and the clocks aligned again.
    """
    matched = match(ranks, numbers)
    clocks = align(matched.calls, hosts)
    wrong = disagreeing(matched.calls, clocks)
    if not wrong.any():
        return matched, clocks
    matched = matched.without(wrong)
    return matched, align(matched.calls, hosts)


LEAST_SHARE = 0.2
"""A kind with a smaller fraction of a group's calls is incidental, such as a gradient norm or a barrier."""
_GATHERED = 0.5
"""Smallest ratio of gathered to reduced bytes at which the gathered tensors are weights."""
_TENSOR_CALLS = 4
"""More all-reduces per forward pass than metrics and the statistics of batch norms need."""


def parallelism(calls: pd.DataFrame, steps: int, *, trains: bool) -> str:
    """Return data, fsdp, tensor, pipeline, expert, or "" for one group's calls of one rank, by their kinds and phases.

    All-to-alls exchange tokens of experts (or rows of embeddings); sends and receives join stages of a pipeline. FSDP
    gathers weights and scatters gradients; gloo reduces them to all instead. Tensor parallelism reduces activations in
    the forward pass, too (sequence parallelism scatters them); data parallelism reduces gradients in the backward pass.
    A job that `trains` nothing has a forward pass only.
    """
    kinds = calls["kind"].value_counts(normalize=True)
    common = set(kinds[kinds >= LEAST_SHARE].index)
    if "send-receive" in common:
        return "pipeline"
    if "all-to-all" in common:
        return "expert"
    reduces = calls[calls["kind"].isin(["all-reduce", "reduce-scatter"])]
    forward = (reduces["phase"] == "forward").sum() if trains else len(reduces)
    if forward / max(1, steps) >= _TENSOR_CALLS:
        return "tensor"
    if "all-gather" in common and ("reduce-scatter" in common or _gathers_what_it_reduces(calls)):
        return "fsdp"
    return "data" if len(reduces) else ""


def _gathers_what_it_reduces(calls: pd.DataFrame) -> bool:
    """Return whether about as many bytes are gathered as reduced."""
    sums = calls.groupby(calls["kind"].astype(str))["bytes"].sum()
    return bool(sums.get("all-gather", 0) >= _GATHERED * sums.get("all-reduce", 0) > 0)
