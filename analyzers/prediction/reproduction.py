"""Compares a simulated step with the measured one."""

import msgspec

REPRODUCED = 0.05
"""Largest relative error at which a simulation reproduces the measured time."""


class Reproduction(msgspec.Struct, frozen=True):
    """Simulated latency of an unchanged step, and its measured latency."""

    simulated_us: float
    stated_us: float

    @property
    def error(self) -> float:
        """Simulated divided by stated latency, minus 1."""
        return self.simulated_us / self.stated_us - 1 if self.stated_us else 0.0

    @property
    def holds(self) -> bool:
        return abs(self.error) <= REPRODUCED
