"""Generates kernel code from a group's pointwise ops: its value, its gradients, and its reference."""

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.analyzers.fusion.graph import Graph
from tracekit.analyzers.fusion.groups import OpGroup, roots
from tracekit.analyzers.fusion.kernel import GENERATED

Line = tuple[str, str]
"""A name and the expression that is assigned to it."""

_VALUES = {
    "add": "{a} + {b}",
    "sub": "{a} - {b}",
    "mul": "{a} * {b}",
    "div": "{a} / {b}",
    "neg": "-{a}",
    "exp": "tl.exp({a})",
    "tanh": "_tanh({a})",
    "sigmoid": "tl.sigmoid({a})",
    "silu": "{a} * tl.sigmoid({a})",
    "relu": "tl.maximum({a}, 0.0)",
    "to_copy": "{a}",
}
_SLOPES = {
    "add": ("{g}", "{g}"),
    "sub": ("{g}", "-{g}"),
    "mul": ("{g} * {b}", "{g} * {a}"),
    "div": ("{g} / {b}", "-{g} * {a} / ({b} * {b})"),
    "neg": ("-{g}",),
    "exp": ("{g} * {v}",),
    "tanh": ("{g} * (1.0 - {v} * {v})",),
    "sigmoid": ("{g} * {v} * (1.0 - {v})",),
    "silu": ("{g} * tl.sigmoid({a}) * (1.0 + {a} * (1.0 - tl.sigmoid({a})))",),
    "relu": ("tl.where({a} > 0.0, {g}, 0.0)",),
    "to_copy": ("{g}",),
}
"""Gradient of each input, from the gradient of the value (g), the value (v) and the inputs (a, b)."""
_TORCH = {
    "neg": "-{a}",
    "exp": "torch.exp({a})",
    "tanh": "torch.tanh({a})",
    "sigmoid": "torch.sigmoid({a})",
    "silu": "torch.nn.functional.silu({a})",
    "relu": "torch.relu({a})",
    "to_copy": "{a}",
}
_TANH = """@triton.jit
def _tanh(x):
    return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * x))


"""


@dataclass
class _Op:
    name: str
    value: str
    inputs: list[str]
    """Names of values, or numbers."""


def body(group: OpGroup, arguments: Sequence[str], gradient: str) -> str:
    """Return the functions _body, `gradient` and _unfused of a group. `arguments` names its inputs in order."""
    ops = _read(group, arguments)
    signature, result = ", ".join(arguments), ops[-1].value
    forward = [(op.value, _expression(_VALUES, op)) for op in ops]
    plain = [(op.value, _expression({**_VALUES, **_TORCH}, op)) for op in ops]
    backward, gradients = _backward(ops, arguments)
    return "\n\n\n".join(
        [
            (_TANH.rstrip() + "\n\n\n" if any(op.name == "tanh" for op in ops) else "")
            + _function("_body", signature, forward, result, jit=True),
            _function(gradient, f"{signature}, grad", [*forward, *backward], ", ".join(gradients), jit=True),
            _function("_unfused", signature, plain, result),
        ]
    )


def _read(group: OpGroup, arguments: Sequence[str]) -> list[_Op]:
    graph, root = group.graph, roots(group.graph)
    names = dict(zip(group.inputs, arguments, strict=True))
    ops = []
    for number, node in enumerate(group.nodes, 1):
        each = graph.nodes[node]
        read = [names[root[tensor]] for tensor in each.inputs]
        ops.append(_Op(graph.name(node), f"v{number}", _inputs(graph, node, read)))
        names.update(dict.fromkeys(each.outputs, f"v{number}"))
    return ops


def _inputs(graph: Graph, node: int, tensors: list[str]) -> list[str]:
    """Return the operands of an op: tensors by name, and numbers as they are."""
    numbers = graph.nodes[node].numbers if graph.name(node) in GENERATED["two"] and len(tensors) < 2 else ()
    return [*tensors, *(f"{number!r}" for number in numbers)]


def _expression(table: dict[str, str], op: _Op) -> str:
    if op.name == "pow":
        return " * ".join([op.inputs[0]] * int(float(op.inputs[1])))
    return table[op.name].format(a=op.inputs[0], b=op.inputs[-1])


def _backward(ops: Sequence[_Op], arguments: Sequence[str]) -> tuple[list[Line], list[str]]:
    """Return the lines that compute the gradients in reverse order of the ops, and the gradients of the arguments."""
    summed: dict[str, list[str]] = {ops[-1].value: ["grad"]}
    lines: list[Line] = []
    for op in reversed(ops):
        parts = summed.pop(op.value, [])
        if not parts:
            continue
        name = f"d{op.value}"
        lines.append((name, " + ".join(parts)))
        for operand, slope in zip(op.inputs, _slopes(op, name), strict=False):
            if not _is_number(operand):
                summed.setdefault(operand, []).append(slope)
    return lines, [" + ".join(summed.get(argument, ["grad * 0.0"])) for argument in arguments]


def _slopes(op: _Op, gradient: str) -> list[str]:
    if op.name == "pow":
        exponent = int(float(op.inputs[1]))
        return [" * ".join([gradient, f"{float(exponent)!r}", *[op.inputs[0]] * (exponent - 1)])]
    return [each.format(a=op.inputs[0], b=op.inputs[-1], g=gradient, v=op.value) for each in _SLOPES[op.name]]


def _is_number(operand: str) -> bool:
    return operand[0].isdigit() or operand[0] == "-"


def _function(name: str, signature: str, lines: Sequence[Line], result: str, *, jit: bool = False) -> str:
    rows = [f"    {target} = {expression}" for target, expression in lines]
    return "\n".join([*(["@triton.jit"] if jit else []), f"def {name}({signature}):", *rows, f"    return {result}"])
