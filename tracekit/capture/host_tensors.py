"""Tracks which tensors a program creates on the host."""

import torch
from torch.utils.weak import WeakIdKeyDictionary


class HostTensors:
    """Tracks the tensors that a program creates on the host, as opposed to those in a GPU's memory."""

    def __init__(self) -> None:
        self._made = WeakIdKeyDictionary()

    def add(self, tensor: torch.Tensor) -> None:
        self._made[tensor] = True

    def discard(self, tensor: torch.Tensor) -> None:
        self._made.pop(tensor, None)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return tensor in self._made
