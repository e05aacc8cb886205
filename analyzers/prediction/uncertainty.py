"""How wide the interval of a predicted speed-up is: what it depends on that is not known, each with a measured width.

`benchmarks/intervals.py` measures the widths (intervals.toml), by conformal prediction on what was measured.
"""

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from tracekit.analyzers.interval import Interval

Evidence = Literal["timed", "profiled", "modelled"]
"""A prediction starts from a trace and a latency without a profiler, from a trace alone, or from no measurement."""
Ends = tuple[float, float]
"""How far something may lower and raise the logarithm of a speed-up."""
MOST_QUOTED = 2.0
"""Of an interval whose upper end is more than this times the lower one, only what would narrow it is said."""


@dataclass(frozen=True)
class Sources:
    """What the logarithm of a predicted speed-up depends on, as far as that is left open."""

    outcome: Ends = (0.0, 0.0)
    """How well the optimization turns out: its worst and its best modelled outcome."""
    host: Ends = (0.0, 0.0)
    """The host times that the evidence leaves open."""
    drift: float = 0.0
    """Change of the logarithm with that of the host's speed, 0 to 1: before the optimization the host sets the pace,
    after it less. A host's speed differs between processes, and between minutes on a shared machine."""


@dataclass(frozen=True)
class Widths:
    """Factors on the sources, and what repeats differ by."""

    repeat: float
    outcome: float
    host: float
    drift: float


def interval(expected: float, sources: Sources, widths: Widths) -> Interval:
    """The expected speed-up between its ends: independent sources add as squares."""
    down, up = (_half(sources, widths, side) for side in (0, 1))
    return Interval(expected * math.exp(-down), expected, expected * math.exp(up))


def _half(sources: Sources, widths: Widths, side: int) -> float:
    return math.hypot(
        widths.repeat,
        widths.outcome * sources.outcome[side],
        widths.host * sources.host[side],
        widths.drift * sources.drift,
    )


@cache
def widths(evidence: Evidence) -> Widths:
    """Those of predictions that start from such evidence."""
    table = tomllib.loads((Path(__file__).parent / "intervals.toml").read_text(encoding="utf-8"))
    return Widths(**{name: table[evidence][name] for name in ("repeat", "outcome", "host", "drift")})
