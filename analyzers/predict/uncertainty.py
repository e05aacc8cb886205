"""Width of the interval of a predicted speed-up: each unknown quantity contributes a measured width.

`benchmarks/fitting/intervals.py` measures the widths (intervals.toml), by conformal prediction on measured steps.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from tracekit.analyzers.core import Interval

Evidence = Literal["timed", "timed-script", "profiled", "script", "modelled"]
"""Evidence that a prediction starts from: a trace and a latency without a profiler, the same for a change of another
script's code, only a trace of a model that tracekit ran, only a trace of another script, or a model."""
Ends = tuple[float, float]
"""Amounts by which the logarithm of a speed-up may be lower and higher."""
MOST_QUOTED = 2.0
"""Largest ratio of an interval's ends that a headline quotes. For a wider interval, the headline says how to narrow
it."""


@dataclass(frozen=True)
class Sources:
    """Sources of uncertainty in the logarithm of a predicted speed-up."""

    outcome: Ends = (0.0, 0.0)
    """Amounts by which the worst and the best modelled outcome of the optimization lower and raise it."""
    host: Mapping[float, float] = field(default_factory=dict)
    """Logarithm of a factor on host times -> change of the logarithm on such a host. Host speed differs between
    machines, between processes, and over minutes on a shared machine."""
    waiting: float = 0.0
    """Fraction of the saved time for which the device was idle, 0 to 1."""


@dataclass(frozen=True)
class Widths:
    """Measured widths: of repeats (a logarithm), a factor on the outcome, and of host times (a logarithm)."""

    repeat: float
    outcome: float
    host: float
    gain_busy: float = 0.0
    """Error of a gain due to causes that no trace shows, such as how a script is changed, as a fraction of its
    logarithm: of the part that is saved while the device is busy."""
    gain_waiting: float = 0.0
    """The same, of the part that is saved while the device waits. What is left of a wait is known less well than what
    is left of a kernel."""

    @property
    def to_decide(self) -> "Widths":
        """The widths by which advice is chosen: without the errors of gains, which affect all scripts' gains."""
        return replace(self, gain_busy=0.0, gain_waiting=0.0)

    def untold(self, gain: float, waiting: float) -> float:
        """Return the error in the logarithm of a gain that no trace shows."""
        return math.log(gain) * math.hypot(self.gain_busy * (1 - waiting), self.gain_waiting * waiting)


def interval(expected: float, sources: Sources, widths: Widths) -> Interval:
    """Return the interval of a speed-up. Independent sources add as squares."""
    hosts, untold = host_ends(sources.host, widths.host), widths.untold(expected, sources.waiting)
    down, up = (
        math.hypot(widths.repeat, widths.outcome * end, host, untold)
        for end, host in zip(sources.outcome, hosts, strict=True)
    )
    return Interval(expected * math.exp(-down), expected, expected * math.exp(up))


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
    """Return the widths of predictions from this evidence. A latency does not tell what a change of the code makes of
    a step: errors of such gains are those of scripts that were not timed."""
    if evidence == "timed-script":
        untold = widths("script")
        return replace(widths("timed"), gain_busy=untold.gain_busy, gain_waiting=untold.gain_waiting)
    table = tomllib.loads((Path(__file__).parent / "intervals.toml").read_text(encoding="utf-8"))
    names = [each.name for each in fields(Widths)]
    return Widths(**{name: table[evidence][name] for name in names if name in table[evidence]})
