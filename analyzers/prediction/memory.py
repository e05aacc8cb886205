"""What a step holds in device memory, by what it is for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Memory:
    """Bytes at the peak of a step."""

    weights: int = 0
    kv_cache: int = 0
    activations: int = 0
    gradients: int = 0
    optimizer_state: int = 0

    @property
    def peak(self) -> int:
        return self.weights + self.kv_cache + self.activations + self.gradients + self.optimizer_state
