"""Tracks the memory of a run on fake tensors: the bytes of storages alive at the same time."""

import weakref
from collections.abc import Callable, Iterable

import torch

from tracekit.capture.storages import storages


class LiveMemory:
    """Sums the bytes of every storage seen until it is freed. A storage that several tensors share counts once."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._blocks = 0
        self.live_bytes = 0
        self.peak_bytes = 0
        self.told: Callable[[int, int], None] = lambda _block, _size: None
        """Called with the number of a block and the bytes that it adds, negative when it is freed."""

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        for storage in (each for tensor in tensors for each in storages(tensor)):
            key = storage._cdata
            if key not in self._seen:
                self._blocks += 1
                self._seen[key] = self._blocks
                self.live_bytes += storage.nbytes()
                self.told(self._blocks, storage.nbytes())
                weakref.finalize(storage, self._free, key, storage.nbytes())
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _free(self, key: int, size: int) -> None:
        block = self._seen.pop(key, 0)
        self.live_bytes -= size
        self.told(block, -size)
