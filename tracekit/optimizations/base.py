"""What every optimization is: does it apply, and what would it give."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, Self

import pandas as pd

from analyzers.errors import InputError
from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from analyzers.prediction.memory import Memory

Outcome = Literal["low", "expected", "high"]
"""How well an optimization turns out: the end of the interval that a prediction is for."""


class Optimization(ABC):
    """One optimization. Its transform of the op list, simulated again, is its prediction."""

    id: ClassVar[str]
    title: ClassVar[str]
    caveats: ClassVar[tuple[str, ...]] = ()
    work_factor: ClassVar[float] = 1.0
    """How many times the baseline's work one step then does; above 1, the speed-up is one of throughput."""

    @abstractmethod
    def objection(self, base: Baseline) -> str | None:
        """Why it does not apply to this run; None when it does."""

    @abstractmethod
    def transform(self, base: Baseline, outcome: Outcome) -> pd.DataFrame:
        """The op list after the optimization (OP_LIST)."""

    @abstractmethod
    def reason(self, base: Baseline) -> str:
        """One sentence: why this run gains from it."""

    @abstractmethod
    def how_to(self, base: Baseline) -> str:
        """Code or a command to copy."""

    def evidence(self, base: Baseline) -> tuple[str, ...]:
        """What in the trace led to it."""
        return ()

    def memory(self, base: Baseline, before: Memory) -> Memory:
        """What a step holds in device memory after the optimization."""
        return before

    def with_argument(self, argument: str) -> Self:
        """This optimization with what followed its id and a colon. Raises InputError when it takes nothing such."""
        raise InputError(f"{self.id} takes no argument.", f"It was given {argument!r}.", f"Write: {self.id}")


def pick(interval: Interval, outcome: Outcome) -> float:
    return float(getattr(interval, outcome))


def share(base: Baseline, rows: "pd.Series[bool]") -> float:
    """The part of the busy time that these rows of the op list take, 0 to 1."""
    return float(base.ops.kernel_ns[rows].sum() / max(base.busy_ns, 1.0))


def percent(fraction: float) -> str:
    return f"{fraction:.0%}".replace("%", " %")
