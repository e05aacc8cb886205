"""Numbers the tensors of an execution trace, whose ids identify memory that is reused after it is freed."""

from dataclasses import dataclass, field

from tracekit.analyzers.fusion.graph import Tensor
from tracekit.analyzers.readers.execution_trace import TensorValue

Place = tuple[int, tuple[int, ...], tuple[int, ...], str]
"""Offset, shape, strides and type within a storage."""


@dataclass
class _Storage:
    known: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """Place -> the number of its tensor, and the write after which it was made."""
    written: tuple[int, int] = (-1, 0)
    """The tensor that was last written, and the number of that write."""
    kind: tuple[str, str] = ("", "")
    """Device and type of the tensor that was first seen in it."""
    empty: bool = False
    """Whether it was allocated, and nothing recorded has written to it."""


class TensorVersions:
    """Numbers of tensors. A write, also in place, gives a tensor a new number."""

    def __init__(self) -> None:
        self.tensors: dict[int, Tensor] = {}
        self._storages: dict[int, _Storage] = {}

    def read(self, value: TensorValue) -> int:
        """Return the number of a tensor, or of the tensor that was last written to its storage."""
        storage = self._storages.setdefault(value.storage, _Storage())
        if _place(value) not in storage.known and storage.kind not in (("", ""), _kind(value)):
            self._storages[value.storage] = storage = _Storage()  # memory of a number, which no op allocates
        number, after = storage.known.get(_place(value), (-1, -1))
        if number >= 0 and after >= storage.written[1]:
            return number
        return storage.written[0] if storage.written[0] >= 0 else self._new(value, storage)

    def is_empty(self, value: TensorValue) -> bool:
        """Return whether a tensor's memory was allocated, and no recorded op has written to it."""
        storage = self._storages.get(value.storage)
        return storage is not None and storage.empty

    def viewed(self, value: TensorValue) -> int:
        """Return the number of a new view."""
        return self._new(value, self._storages.setdefault(value.storage, _Storage()))

    def written(self, value: TensorValue, *, in_place: bool) -> int:
        """Return the number of a written tensor. If not `in_place`, earlier tensors at that address are discarded."""
        storage = self._storages.setdefault(value.storage, _Storage()) if in_place else _Storage()
        self._storages[value.storage] = storage
        storage.written, storage.empty = (len(self.tensors), storage.written[1] + 1), False
        return self._new(value, storage)

    def allocated(self, value: TensorValue) -> None:
        """Note that memory is newly allocated, and contains no earlier tensor."""
        self._storages[value.storage] = _Storage(empty=True)

    def _new(self, value: TensorValue, storage: _Storage) -> int:
        number = len(self.tensors)
        self.tensors[number] = Tensor(value.shape, value.dtype)
        storage.known[_place(value)] = number, storage.written[1]
        storage.kind = storage.kind if any(storage.kind) else _kind(value)
        return number


def _kind(value: TensorValue) -> tuple[str, str]:
    return value.device, value.dtype


def _place(value: TensorValue) -> Place:
    return value.offset, value.shape, value.strides, value.dtype
