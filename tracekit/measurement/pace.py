"""Reports the progress of a measurement, and detects other load on the CPU."""

import time
from dataclasses import dataclass, field

from tracekit.capture.progress import Say, silent

SAY_EVERY_S = 10.0
"""Minimum time in seconds between two reports, and before the first."""
_STARVED = 1.5
"""Ratio of wall time to the process's CPU time above which it waited for a CPU. On an idle machine it is 1 or less."""


@dataclass
class Progress:
    """Counts the steps of a measurement, and reports the time that is left."""

    total: int
    say: Say = silent
    _done: int = 0
    _began: float = field(default_factory=lambda: time.monotonic())
    _reported: float = field(default_factory=lambda: time.monotonic())

    def step(self) -> None:
        """Count one finished step."""
        self._done += 1
        now = time.monotonic()
        if now - self._reported >= SAY_EVERY_S and self._done < self.total:
            self._reported = now
            left = (now - self._began) / self._done * (self.total - self._done)
            self.say(f"step {self._done} of {self.total}, about {_rounded(left)} left")

    def set_total(self, total: int) -> None:
        """Set the number of steps, once the time of one is known."""
        self.total = total


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class CpuShare:
    """Compares the wall time since its creation with the CPU time of this process."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def warning(self) -> str:
        """Return a warning if other work kept the CPU busy, else ""."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        if wall < _STARVED * cpu:
            return ""
        return f"The CPU was busy with other work: {wall:.1f} s passed while this process computed for {cpu:.1f} s."
