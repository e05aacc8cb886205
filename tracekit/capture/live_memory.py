"""Track the peak memory of a run on fake tensors: the bytes of storages alive at the same time."""

import weakref
from collections.abc import Iterable

import torch


class LiveMemory:
    """Sums the bytes of every storage seen until it is freed. A storage that several tensors share counts once."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self.live_bytes = 0
        self.peak_bytes = 0

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._seen:
                self._seen.add(key)
                self.live_bytes += storage.nbytes()
                weakref.finalize(storage, self._free, key, storage.nbytes())
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.live_bytes -= size
