"""Width of the interval of a predicted speed-up: each unknown quantity contributes a measured width.

`benchmarks/fitting/intervals.py` measures the widths (intervals.toml), by conformal prediction on measured steps.
"""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from tracekit.analyzers.core import Interval, toml_table

Evidence = Literal["timed", "timed-script", "profiled", "script", "modelled"]
"""Evidence that a prediction starts from: a trace and a latency without a profiler, the same for a change of another
script's code, only a trace of a model that tracekit ran, only a trace of another script, or a model."""
Ends = tuple[float, float]
"""Amounts by which the logarithm of a speed-up may be lower and higher."""
MOST_QUOTED = 2.0
"""Largest ratio of an interval's ends that a headline quotes. For a wider interval, the headline says how to narrow
it."""


class Sources(msgspec.Struct, frozen=True):
    """Sources of uncertainty in the logarithm of a predicted speed-up."""

    outcome: Ends = (0.0, 0.0)
    """Amounts by which the worst and the best modelled outcome of the optimization lower and raise it."""
    host: Mapping[float, float] = msgspec.field(default_factory=dict)
    """Logarithm of a factor on host times -> change of the logarithm on such a host. Host speed differs between
    machines, between processes, and over minutes on a shared machine."""
    no_loss: bool = False
    """Whether a step takes longer in no simulated outcome and on no simulated host."""
    most: float = math.inf
    """Largest speed-up that the work which remains in some outcome allows."""
    limit: float = math.inf
    """Speed-up that physics allows at most: the factor on the work of a step."""
    keeps_kernels: bool = False
    """Whether no kernel takes less time, so that `most` is no larger for another way to change the code."""
    waiting: float = 0.0
    """Part of the saved time in which the device waits for the host, 0 to 1. A trace tells how long kernels take, but
    not how long the host's work takes at another time and without a profiler."""


class Untold(msgspec.Struct, frozen=True):
    """Errors of the logarithm of a script's gain due to causes that no trace shows, such as how it is changed."""

    gain: float
    """Error of any gain."""
    waiting: float
    """Error of a gain that saves only waiting, in addition."""
    beyond: float
    """Part of the way to the largest gain that the trace allows, in addition at the upper end."""

    def errors(self, expected: float, sources: Sources) -> Ends:
        error = self.gain + self.waiting * sources.waiting
        return error, error + self.beyond * max(0.0, math.log(sources.most / expected))


class Widths(msgspec.Struct, frozen=True):
    """Measured widths: of repeats (a logarithm), a factor on the outcome, and of host times (a logarithm)."""

    repeat: float
    outcome: float
    host: float
    untold: Untold | None = None
    """Errors of a script's gain; None: not a script's."""


def interval(expected: float, sources: Sources, widths: Widths) -> Interval:
    """Return the interval of a speed-up. Independent sources add as squares; physics bounds their sum."""
    hosts = host_ends(sources.host, widths.host)
    errors = widths.untold.errors(expected, sources) if widths.untold else (0.0, 0.0)
    down, up = (
        math.hypot(widths.repeat, widths.outcome * end, host, error)
        for end, host, error in zip(sources.outcome, hosts, errors, strict=True)
    )
    low, high = expected * math.exp(-down), expected * math.exp(up)
    least = min(1.0, expected * math.exp(-widths.repeat)) if sources.no_loss else 0.0
    unsure = widths.repeat + (0.0 if sources.keeps_kernels else errors[0])
    most = min(sources.most * math.exp(unsure), sources.limit)
    return Interval(max(low, least), expected, min(high, max(expected, most)))


def host_ends(changes: Mapping[float, float], width: float) -> Ends:
    """Return how much hosts up to exp(width) times as fast and as slow lower and raise the logarithm.

    Between simulated hosts, the change is interpolated. Beyond them, it is that of the outermost host.
    """
    known = dict(sorted({0.0: 0.0, **changes}.items()))
    logs = [-width, *(log for log in known if abs(log) < width), width]
    reached = np.interp(logs, list(known), list(known.values()))
    return max(0.0, -float(reached.min())), max(0.0, float(reached.max()))


@cache
def widths(evidence: Evidence) -> Widths:
    """Return the widths of predictions from this evidence."""
    table = toml_table(Path(__file__).with_name("intervals.toml"))[evidence]
    untold = Untold(table["gain"], table["waiting"], table["beyond"]) if "gain" in table else None
    return Widths(table["repeat"], table["outcome"], table["host"], untold)


_MEASURED: Mapping[Evidence, Evidence] = {"script": "profiled", "timed-script": "timed"}


def widths_to_decide(evidence: Evidence) -> Widths:
    """Return the widths by which advice is chosen: those of models that tracekit ran, because the errors of gains
    affect all gains of a script."""
    return widths(_MEASURED.get(evidence, evidence))
