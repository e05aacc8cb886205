"""The ops of one step and the tensors between them, which capture writes beside a trace."""

import gzip
from collections import defaultdict
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from tracekit.analyzers.costs import cost_of_signature
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.ranges import ROOT


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A distinct op call, as the profiler writes it (JSON texts)."""

    name: str
    shapes: str
    dtypes: str
    strides: str
    values: str


class Tensor(msgspec.Struct, frozen=True, array_like=True):
    shape: tuple[int, ...]
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

    def strides(self, node: int) -> list[Any]:
        """Return the strides of a call's arguments; [] for an argument that is not a tensor."""
        strides: list[Any] = msgspec.json.decode(self.calls[self.nodes[node].call].strides)
        return strides

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
    try:
        return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=Graph)
    except (msgspec.DecodeError, OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read.", str(error), "Remove it, and profile the run again.") from error
