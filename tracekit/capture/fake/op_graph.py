"""Numbers the tensors that ops read and write, and keeps a recording as the graph of its ops."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from tracekit.analyzers.core import progressed
from tracekit.analyzers.fuse import Call, Graph, Node, Tensor
from tracekit.analyzers.trace import ranges
from tracekit.capture.emitted_ranges import Annotation, has_forward, range_name
from tracekit.capture.fake.op_calls import TENSOR_TYPES
from tracekit.capture.fake.recording import Recording

Shape = tuple[tuple[int, ...], str]


class TensorNumbers:
    """Numbers for tensors. A tensor that an op writes, also in place, gets a new number."""

    def __init__(self) -> None:
        self._numbers: Any = WeakIdKeyDictionary()
        self.shapes: list[Shape] = []

    def read(self, tensors: list[torch.Tensor]) -> tuple[int, ...]:
        return tuple(self._numbers[t] if t in self._numbers else self._new(t) for t in tensors)

    def written(self, tensors: list[torch.Tensor]) -> tuple[int, ...]:
        return tuple(self._new(tensor) for tensor in tensors)

    def _new(self, tensor: torch.Tensor) -> int:
        self._numbers[tensor] = len(self.shapes)
        self.shapes.append((tuple(tensor.shape), TENSOR_TYPES.get(tensor.dtype, "")))
        return self._numbers[tensor]


def numbers_in(arguments: Sequence[Any]) -> tuple[float, ...]:
    """Return the finite numbers among the first two arguments of a call, because JSON has no others."""
    return tuple(float(each) for each in arguments[:2] if type(each) in (int, float) and isfinite(each))


def note_results(model: torch.nn.Module, recording: Recording) -> Annotation:
    """Record which modules return anything other than one tensor, until `remove()` or the end of the `with` block."""
    named = [(range_name(path, module), module) for path, module in model.named_modules() if has_forward(module)]
    noting = [module.register_forward_hook(_noting(name, recording)) for name, module in named]
    return Annotation([*noting, *_counting([module for _, module in named])])


def _counting(modules: list[torch.nn.Module]) -> list[Any]:
    """Tell who watches how many of the modules, of which the model is the first, were called in each of its passes."""
    called = set[torch.nn.Module]()

    def count(module: torch.nn.Module, *_: Any) -> None:
        called.add(module)
        whole = module is modules[0]
        progressed("recording modules", len(modules) if whole else len(called), len(modules))
        if whole:
            called.clear()

    return [module.register_forward_hook(count) for module in modules]


def _noting(name: str, recording: Recording) -> Callable[..., None]:
    _, path, _ = ranges.parse(name) or ("", "", "")

    def note(_module: torch.nn.Module, _inputs: Any, result: Any) -> None:
        if not isinstance(result, torch.Tensor):
            recording.composite.add(path)

    return note


def graph_of(recording: Recording) -> Graph:
    """Return the graph of a recorded step."""
    layers, layer_of, phase_of = _places(recording)
    forward = {sequence: slot for slot, sequence in enumerate(recording.sequence) if sequence >= 0}
    slots = [slot for slot, call in enumerate(recording.call) if call >= 0]
    position = {slot: i for i, slot in enumerate(slots)}
    nodes, used = [], set[int]()
    for slot in slots:
        inputs, outputs, numbers = recording.tensors[slot]
        used.update(inputs, outputs)
        origin = -1
        if recording.node[slot] >= 0:
            origin = position.get(forward.get(recording.nodes[recording.node[slot]].sequence, -1), -2)
        call = recording.calls[recording.call[slot]]
        place = layer_of[slot], phase_of[slot]
        nodes.append(Node(recording.call[slot], *place, inputs, outputs, call.launches, origin, numbers))
    calls = tuple(Call(c.name, c.shapes, c.dtypes, c.strides, c.values) for c in recording.calls)
    tensors = {number: Tensor(*recording.shapes[number]) for number in sorted(used)}
    return Graph(calls, layers, tensors, tuple(nodes), bool(recording.nodes), tuple(sorted(recording.composite)))


def _places(recording: Recording) -> tuple[tuple[tuple[str, str], ...], list[int], list[str]]:
    """Return the modules, and for each slot the number of the innermost module around it, and its phase."""
    layers: dict[tuple[str, str], int] = {("", ""): 0}
    layer_of, phase_of = [0] * len(recording.call), [""] * len(recording.call)
    for each in recording.ranges:  # in order of opening: inner ranges come later
        kind, path, of_type = ranges.parse(each.name) or ("", "", "")
        inside = range(each.opens, each.closes + 1)
        if kind == "module":
            number = layers.setdefault((path, of_type), len(layers))
            layer_of[each.opens : each.closes + 1] = [number] * len(inside)
        elif kind == "phase":
            phase_of[each.opens : each.closes + 1] = [path] * len(inside)
    return tuple(layers), layer_of, phase_of
