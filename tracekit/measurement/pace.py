"""How many steps a measurement takes, told while it runs; and whether the machine did anything else meanwhile."""

import time
from dataclasses import dataclass, field

from tracekit.capture.progress import Say, silent

SAY_EVERY_S = 10.0
"""Progress is told at most this often, and not before."""
_STARVED = 1.5
"""Wall time over CPU time of the process; on a quiet machine it is 1, or less with several threads."""


@dataclass
class Progress:
    """Counts the steps of a measurement, and says how many there are and how long the others will take."""

    total: int
    say: Say = silent
    _done: int = 0
    _began: float = field(default_factory=lambda: time.monotonic())
    _said: float = field(default_factory=lambda: time.monotonic())

    def step(self) -> None:
        """One more step is done."""
        self._done += 1
        now = time.monotonic()
        if now - self._said >= SAY_EVERY_S and self._done < self.total:
            self._said = now
            left = (now - self._began) / self._done * (self.total - self._done)
            self.say(f"step {self._done} of {self.total}, about {_rounded(left)} left")

    def of(self, total: int) -> None:
        """The total, once it is known what a step costs."""
        self.total = total


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class CpuShare:
    """Compares the wall time since it was made with the CPU time of this process."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def warning(self) -> str:
        """What a busy machine says against times of its CPU; "": nothing."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        if wall < _STARVED * cpu:
            return ""
        return f"The CPU was busy with other work: {wall:.1f} s passed while this process computed for {cpu:.1f} s."
