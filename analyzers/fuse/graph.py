"""The ops of one step and the tensors between them, which capture writes beside a trace."""

import gzip
from collections import defaultdict
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Annotated, Any

import msgspec

from tracekit.analyzers.core import decoded
from tracekit.analyzers.cost import Cost, cost_of_signature
from tracekit.analyzers.trace import ROOT


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A distinct op call, as the profiler writes it (JSON texts)."""

    name: str
    shapes: str
    dtypes: str
    strides: str
    values: str


Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
"""A size of a tensor, or its strides: those of real ones are smaller than 2 to the 40th."""


class Tensor(msgspec.Struct, frozen=True, array_like=True):
    shape: Annotated[tuple[Size, ...], msgspec.Meta(max_length=64)]
    dtype: str

    @property
    def elements(self) -> int:
        return prod(self.shape)


class Node(msgspec.Struct, frozen=True, array_like=True):
    """An op call of the step. Each tensor has a number, and at most one node writes it."""

    call: int
    layer: int
    phase: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    launches: bool
    forward: int = -1
    """For a backward op, the position of the forward node that it differentiates; -1: none."""
    numbers: tuple[float, ...] = ()
    """Numbers among the first two arguments, such as an exponent. A trace does not record numbers next to tensors."""


class Graph(msgspec.Struct, frozen=True, dict=True):
    calls: tuple[Call, ...]
    layers: tuple[tuple[str, str], ...]
    """Path and class of each called module, in the order of first calls. The first entry is code outside modules."""
    tensors: dict[int, Tensor]
    nodes: tuple[Node, ...]
    training: bool = False
    composite: tuple[str, ...] = ()
    """Paths of the modules that return anything other than one tensor."""
    named: bool = True
    """Whether modules are those of the model, and not inferred from ops."""

    @cached_property
    def costs(self) -> list[Cost | None]:
        """The cost of each call; None: unknown."""
        return [cost_of_signature(c.name, c.shapes, c.dtypes, c.values, strides_json=c.strides) for c in self.calls]

    @cached_property
    def producers(self) -> dict[int, int]:
        """Map each tensor to the position of the node that writes it."""
        return {tensor: i for i, node in enumerate(self.nodes) for tensor in node.outputs}

    @cached_property
    def gradients(self) -> dict[int, list[int]]:
        """Map the position of a node to the positions of the nodes that compute its gradient."""
        gradients: dict[int, list[int]] = defaultdict(list)
        for i, node in enumerate(self.nodes):
            if node.forward >= 0:
                gradients[node.forward].append(i)
        return dict(gradients)

    @cached_property
    def inside(self) -> dict[str, list[int]]:
        """Map each module to the launching forward nodes inside it. All of them are inside the model itself."""
        inside: dict[str, list[int]] = defaultdict(list)
        for i, node in enumerate(self.nodes):
            if node.launches and node.forward < 0 and node.phase != "backward":
                names = self.layer(i).split(".")
                for path in {ROOT, *(".".join(names[:end]) for end in range(1, len(names) + 1))}:
                    inside[path].append(i)
        return dict(inside)

    def name(self, node: int) -> str:
        """Return the op's name: add for aten::add and aten::add_, native_dropout for aten::native_dropout."""
        return self.calls[self.nodes[node].call].name.removeprefix("aten::").strip("_")

    def cost(self, node: int) -> Cost | None:
        return self.costs[self.nodes[node].call]

    def layer(self, node: int) -> str:
        return self.layers[self.nodes[node].layer][0]

    def layer_type(self, node: int) -> str:
        return self.layers[self.nodes[node].layer][1]

    def values(self, node: int) -> list[Any]:
        """Return the concrete values of a call's arguments; "" for tensors."""
        values: list[Any] = msgspec.json.decode(self.calls[self.nodes[node].call].values)
        return values

    def last_stride(self, node: int, argument: int) -> Any:
        """Return the stride of the last dimension of a call's argument; None if it is no tensor with one."""
        strides: list[Any] = msgspec.json.decode(self.calls[self.nodes[node].call].strides)
        one = strides[argument] if argument < len(strides) else None
        return one[-1] if isinstance(one, list) and one else None

    def children(self, layer: str) -> list[tuple[str, str]]:
        """Return names and classes of a module's children in the order of their first calls."""
        prefix = f"{layer}."
        return [
            (path.removeprefix(prefix), kind)
            for path, kind in self.layers
            if path.startswith(prefix) and "." not in path.removeprefix(prefix)
        ]


def to_bytes(graph: Graph) -> bytes:
    return gzip.compress(msgspec.json.encode(graph), mtime=0)


def read(path: Path) -> Graph:
    """Return the graph that `to_bytes` encoded. Raises InputError if the file does not hold one."""
    return decoded(path, decode, "Remove it, and profile the run again.")


def decode(data: bytes) -> Graph:
    """Return the graph of a file's JSON. Raises ValueError if it is none, or if a number in it refers to nothing."""
    graph = msgspec.json.decode(data, type=Graph)
    for i, node in enumerate(graph.nodes):
        if not (0 <= node.call < len(graph.calls) and 0 <= node.layer < len(graph.layers)):
            raise ValueError(f"Node {i:,} has an unknown call or layer")
        if not (-2 <= node.forward < len(graph.nodes) and graph.tensors.keys() >= {*node.inputs, *node.outputs}):
            raise ValueError(f"Node {i:,} has an unknown tensor, or is the gradient of an unknown node")
    if len({tensor for node in graph.nodes for tensor in node.outputs}) < sum(
        len(node.outputs) for node in graph.nodes
    ):
        raise ValueError("A tensor is written twice")
    for call in graph.calls:
        if not all(isinstance(msgspec.json.decode(each), list) for each in msgspec.structs.astuple(call)[1:]):
            raise ValueError(f"A call of {call.name:.40} has no lists of arguments")
    return graph
