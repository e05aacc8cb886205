"""How well a simulated step reproduces the step that was timed."""

from dataclasses import dataclass

REPRODUCED = 0.05
"""A simulation this near to what was timed reproduces it."""


@dataclass(frozen=True)
class Reproduction:
    """A step, simulated unchanged, beside the time that it took."""

    simulated_us: float
    stated_us: float

    @property
    def error(self) -> float:
        """Simulated over stated, less 1."""
        return self.simulated_us / self.stated_us - 1 if self.stated_us else 0.0

    @property
    def holds(self) -> bool:
        return abs(self.error) <= REPRODUCED
