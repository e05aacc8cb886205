"""Numbers the tensors of an execution trace, whose ids identify memory that is reused after it is freed."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from tracekit.analyzers.cost import Product
from tracekit.analyzers.fuse.graph import Graph, Tensor
from tracekit.analyzers.fuse.groups import consumers, roots
from tracekit.analyzers.trace import TensorValue

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


_CASTS = ("to_copy", "copy")


def with_modules(graph: Graph) -> Graph:
    """Return the graph with a module for each norm and for each GEMM with weights."""
    layers, layer_of = [("", "")], dict[int, int]()
    for kind, members in _modules(graph):
        layers.append((f"{kind.lower()}{len(layers)}", kind))
        layer_of.update(dict.fromkeys(members, len(layers) - 1))
    nodes = tuple(msgspec.structs.replace(node, layer=layer_of.get(i, 0)) for i, node in enumerate(graph.nodes))
    return msgspec.structs.replace(graph, layers=tuple(layers), nodes=nodes)


def _modules(graph: Graph) -> Iterator[tuple[str, list[int]]]:
    for i, node in enumerate(graph.nodes):
        if not node.launches or node.phase == "backward":
            continue
        cost = graph.cost(i)
        if graph.name(i) == "native_layer_norm":
            yield "LayerNorm", [i]
        elif graph.name(i) == "mean":
            norm = _rms_norm(graph, i)
            if norm:
                yield "RMSNorm", norm
        elif cost and isinstance(cost.work, Product) and cost.weight_bytes:
            yield "Linear", [i]


def _rms_norm(graph: Graph, mean: int) -> list[int]:
    """Return the ops of weight * x / sqrt(mean(x^2) + epsilon) around a mean; []: it is of something else."""
    power = _maker(graph, mean, "pow")
    added = _reader(graph, mean, "add")
    root = _reader(graph, added, "rsqrt")
    scaled = _reader(graph, root, "mul")
    if min(power, added, root, scaled) < 0:
        return []
    last = [*_casts_after(graph, scaled)]
    weighted = _reader(graph, last[-1] if last else scaled, "mul")
    ops = [power, mean, added, root, scaled, *last, weighted]
    return [*_cast_before(graph, power), *(each for each in ops if each >= 0)]


def _maker(graph: Graph, node: int, name: str) -> int:
    """Return the op of this name whose result a node reads; -1: there is none."""
    made = (graph.producers.get(roots(graph)[tensor], -1) for tensor in graph.nodes[node].inputs)
    return next((each for each in made if each >= 0 and graph.name(each) == name), -1)


def _reader(graph: Graph, node: int, name: str) -> int:
    """Return the forward op of this name that reads a node's result; -1: there is none."""
    if node < 0 or not graph.nodes[node].outputs:
        return -1
    readers = sorted(consumers(graph)[graph.nodes[node].outputs[0]])
    ops = (each for each in readers if graph.name(each) == name and graph.nodes[each].phase != "backward")
    return next(ops, -1)


def _casts_after(graph: Graph, node: int) -> Iterator[int]:
    cast = next((each for name in _CASTS if (each := _reader(graph, node, name)) >= 0), -1)
    if cast >= 0:
        yield cast


def _cast_before(graph: Graph, node: int) -> list[int]:
    return [each for name in _CASTS if (each := _maker(graph, node, name)) >= 0]
