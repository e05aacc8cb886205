"""The fused kernels that a step could run. Equal ones are combined; those that save most come first."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tracekit.analyzers.core import Interval, facts
from tracekit.analyzers.cost import ELEMENT_BYTES, GPU
from tracekit.analyzers.fuse.graph import Graph
from tracekit.analyzers.fuse.groups import backward_of, find, ops_of
from tracekit.analyzers.fuse.kernel import Kernel, Tiles, tiles_of
from tracekit.analyzers.fuse.patterns import kernels
from tracekit.analyzers.fuse.replacement import PRECISIONS, Estimate, estimate

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
"""A layer's number, as in h.3."""

_FACTS = facts(__file__)
_INFERENCE: dict[str, list[float]] = _FACTS["inference"]
_TRAINING: dict[str, list[float]] = _FACTS["training"]
"""Template -> lowest and highest time of the kernel over that of torch.compile's, over models and sizes."""
_AS_WELL = 0.97
"""Ratio from which torch.compile counts as equally fast."""


@dataclass
class Planned:
    """One kernel of the plan, for all equal groups of a step."""

    pattern: str
    template: str
    layer: str
    """The layer, with * instead of layer numbers."""
    layer_type: str
    ops: str
    dtype: str
    constants: Mapping[str, Any]
    sizes: Mapping[str, Any]
    library: str
    each: Estimate
    """Modelled time of one group."""
    tiles: Tiles | None
    inputs: str
    """Tensors that one group reads: type and shape."""
    outputs: str
    """Tensors that the group writes and other ops read."""
    first: Kernel
    """Kernel of the first group."""
    layers: set[str] = field(default_factory=set)
    groups: int = 0
    before_ns: float = 0.0
    """Kernel time of all groups, measured if a trace holds it."""

    @property
    def modelled_gain_ns(self) -> float:
        return (self.each.modelled_ns - self.each.modelled_after_ns) * self.groups

    @property
    def elsewhere(self) -> str:
        """Equivalent functions of a library and of torch.compile."""
        compiled = compared_with_compile(self.template, training=self.first.group.graph.training)
        return "; ".join(each for each in (self.library, compiled) if each)

    @property
    def key(self) -> str:
        """Key of its measured times: its template, type, sizes and ops."""
        sizes = ", ".join(f"{name} {value}" for name, value in self.sizes.items())
        return f"{self.template}, {self.dtype}, {sizes}: {self.ops}"

    @property
    def after_ns(self) -> Interval:
        """Predicted time of the fused kernels of all groups."""
        one = self.each.after_ns(self.before_ns / self.groups)
        return Interval(one.low * self.groups, one.expected * self.groups, one.high * self.groups)


def plan(graph: Graph, gpu: GPU, measured_ns: Mapping[int, float] | None = None) -> list[Planned]:
    """Return the kernels of a step, those with the largest modelled gain first.

    `measured_ns` maps positions of nodes to kernel times. Measured times do not change the order, so that a group keeps
    its number.
    """
    backward = backward_of(graph)
    rows: dict[tuple[Any, ...], Planned] = {}
    for kernel in kernels(find(graph)):
        each = estimate(kernel, gpu, backward)
        if not each.saves:
            continue
        row = rows.setdefault(key_of(kernel), _planned(kernel, each, gpu))
        row.groups += 1
        row.layers.add(_layer(kernel))
        nodes = ops_of(kernel.group, backward)
        known = [measured_ns[node] for node in nodes if measured_ns and node in measured_ns]
        row.before_ns += sum(known) if known else each.modelled_ns
    return sorted(rows.values(), key=lambda row: (-row.modelled_gain_ns, row.pattern, row.layer))


def key_of(kernel: Kernel) -> tuple[Any, ...]:
    """Return the properties that equal kernels share."""
    where = _NUMBER.sub("*", _layer(kernel)) if not kernel.template else ""
    return kernel.pattern, kernel.template, kernel.group.names, repr(kernel.constants), repr(kernel.sizes), where


def _layer(kernel: Kernel) -> str:
    """Return the module of the reduction, or else the innermost module that contains the whole group."""
    group = kernel.group
    if not group.graph.named:
        return ""
    if group.reductions:
        return group.graph.layer(group.reductions[0])
    paths = [group.graph.layer(node).split(".") for node in group.nodes]
    shared = [parts[0] for parts in zip(*paths, strict=False) if len(set(parts)) == 1]
    return ".".join(shared)


def _tensors(graph: Graph, tensors: Iterable[int]) -> str:
    """Return, for example, "2 x bf16[8, 1024, 2048], bf16[2048]"."""
    each = [graph.tensors[tensor] for tensor in tensors]
    counts = Counter(f"{PRECISIONS.get(one.dtype, one.dtype)}{list(one.shape)}" for one in each)
    return ", ".join(f"{count} x {one}" if count > 1 else one for one, count in counts.items())


def _planned(kernel: Kernel, each: Estimate, gpu: GPU) -> Planned:
    group, layer = kernel.group, _layer(kernel)
    kinds = dict(group.graph.layers)
    element = int(ELEMENT_BYTES[PRECISIONS.get(kernel.dtype, "fp32")])
    columns = next((kernel.sizes[name] for name in ("columns", "keys", "size") if name in kernel.sizes), 1)
    return Planned(
        pattern=kernel.pattern,
        template=kernel.template,
        layer=_NUMBER.sub("*", layer),
        layer_type=kinds.get(layer, ""),
        ops=", ".join(group.names),
        dtype=kernel.dtype,
        constants=kernel.constants,
        sizes=kernel.sizes,
        library=kernel.library,
        each=each,
        tiles=tiles_of(kernel.template, columns, element, gpu) if kernel.template else None,
        inputs=_tensors(group.graph, group.inputs),
        outputs=_tensors(group.graph, group.outputs),
        first=kernel,
    )


def compared_with_compile(template: str, *, training: bool) -> str:
    """Return in words whether the template's kernel or torch.compile's is faster; "" if it was not measured."""
    if not template:
        return "torch.compile fuses it, where it can compile the model"
    low, high = (_TRAINING if training else _INFERENCE).get(template, (0.0, 0.0))
    if not high:
        return ""
    who = "torch.compile is as fast" if low >= _AS_WELL else "faster than torch.compile's" if high < _AS_WELL else ""
    part = f"{low:.2f} to {high:.2f} of torch.compile's time, measured on an H100 and an H200"
    return f"{who}: {part}" if who else part
