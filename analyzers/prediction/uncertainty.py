"""The width of the interval of a predicted speed-up: what it depends on that is not known, each with a measured width.

`benchmarks/intervals.py` measures the widths (intervals.toml), by conformal prediction on what was measured.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from tracekit.analyzers.interval import Interval

Evidence = Literal["timed", "profiled", "modelled"]
"""A prediction starts from a trace and a latency without a profiler, from a trace alone, or from no measurement."""
Ends = tuple[float, float]
"""How far something may lower and raise the logarithm of a speed-up."""
MOST_QUOTED = 2.0
"""Largest ratio of an interval's ends that a headline quotes. For a wider one it says what narrows it."""


@dataclass(frozen=True)
class Sources:
    """What the logarithm of a predicted speed-up depends on, as far as that is left open."""

    outcome: Ends = (0.0, 0.0)
    """How far the worst and the best modelled outcome of the optimization lower and raise it."""
    host: Mapping[float, float] = field(default_factory=dict)
    """Logarithm of a factor on the host's times -> its change on such a host. A host's speed differs between machines,
    between processes, and on a shared machine between minutes."""


@dataclass(frozen=True)
class Widths:
    """Measured widths: of repeats (a logarithm), a factor on the outcome, and of the host's times (a logarithm)."""

    repeat: float
    outcome: float
    host: float


def interval(expected: float, sources: Sources, widths: Widths) -> Interval:
    """Return the expected speed-up between its ends: independent sources add as squares."""
    hosts = host_ends(sources.host, widths.host)
    down, up = (
        math.hypot(widths.repeat, widths.outcome * end, host) for end, host in zip(sources.outcome, hosts, strict=True)
    )
    return Interval(expected * math.exp(-down), expected, expected * math.exp(up))


def host_ends(changes: Mapping[float, float], width: float) -> Ends:
    """Return how far hosts up to exp(width) times as fast and as slow lower and raise the logarithm.

    Between the simulated hosts the change is interpolated, and beyond them it is that of the outermost one.
    """
    known = dict(sorted({0.0: 0.0, **changes}.items()))
    logs = [-width, *(log for log in known if abs(log) < width), width]
    reached = np.interp(logs, list(known), list(known.values()))
    return max(0.0, -float(reached.min())), max(0.0, float(reached.max()))


@cache
def widths(evidence: Evidence) -> Widths:
    """Return the widths of predictions that start from such evidence."""
    table = tomllib.loads((Path(__file__).parent / "intervals.toml").read_text(encoding="utf-8"))
    return Widths(**{name: table[evidence][name] for name in ("repeat", "outcome", "host")})
