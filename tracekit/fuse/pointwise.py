"""Builds the code of a group's pointwise ops as trees: its value, its gradients, and its reference."""

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from tracekit.analyzers.core import InputError, facts
from tracekit.analyzers.fuse import GENERATED, Graph, OpGroup, roots

Line = tuple[str, ast.expr]
"""A name and the expression that is assigned to it."""

_FACTS = facts(__file__)
_VALUES: dict[str, str] = _FACTS["values"]
"""Value of an op from its inputs (a, b)."""
_SLOPES: dict[str, list[str]] = _FACTS["slopes"]
"""Gradient of each input, from the gradient of the value (g), the value (v) and the inputs (a, b)."""
_TORCH: dict[str, str] = {**_VALUES, **_FACTS["torch"]}
_TANH = "1.0 - 2.0 / (1.0 + tl.exp(2.0 * x))"


@dataclass
class _Op:
    name: str
    value: str
    inputs: list[ast.expr]
    """Names of values, or numbers."""

    def filled(self, expression: str, **more: ast.expr) -> ast.expr:
        """Return an expression with the op's inputs in place of a and b, and its value in place of v."""
        return _filled(expression, {"a": self.inputs[0], "b": self.inputs[-1], "v": ast.Name(self.value), **more})

    @property
    def exponent(self) -> int:
        return int(self.inputs[1].value)  # type: ignore[attr-defined]


def body(group: OpGroup, arguments: Sequence[str], gradient: str) -> tuple[ast.FunctionDef, ...]:
    """Return the functions _body, `gradient` and _unfused of a group. `arguments` names its inputs in order."""
    ops = _read(group, arguments)
    result = [ast.Name(ops[-1].value)]
    forward = [(op.value, _expression(_VALUES, op)) for op in ops]
    plain = [(op.value, _expression(_TORCH, op)) for op in ops]
    backward, gradients = _backward(ops, arguments)
    tanh = [_function("_tanh", ["x"], [], [_filled(_TANH, {})], jit=True)] if "tanh" in group.names else []
    return (
        *tanh,
        _function("_body", arguments, forward, result, jit=True),
        _function(gradient, [*arguments, "grad"], [*forward, *backward], gradients, jit=True),
        _function("_unfused", arguments, plain, result),
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


def _inputs(graph: Graph, node: int, tensors: list[str]) -> list[ast.expr]:
    """Return the operands of an op: tensors by name, and numbers as they are. Raises InputError for an infinity."""
    numbers = graph.nodes[node].numbers if graph.name(node) in GENERATED["two"] and len(tensors) < 2 else ()
    if not all(map(math.isfinite, numbers)):
        raise InputError("The graph has an op with a number that is not finite.", "No code is written with it.")
    return [*map(ast.Name, tensors), *map(ast.Constant, numbers)]


def _expression(table: Mapping[str, str], op: _Op) -> ast.expr:
    return op.filled(" * ".join("a" * op.exponent) if op.name == "pow" else table[op.name])


def _backward(ops: Sequence[_Op], arguments: Sequence[str]) -> tuple[list[Line], list[ast.expr]]:
    """Return the lines that compute the gradients in reverse order of the ops, and the gradients of the arguments."""
    summed: dict[str, list[ast.expr]] = {ops[-1].value: [ast.Name("grad")]}
    lines: list[Line] = []
    for op in reversed(ops):
        parts = summed.pop(op.value, [])
        if not parts:
            continue
        name = f"d{op.value}"
        lines.append((name, _sum(parts)))
        for operand, slope in zip(op.inputs, _slopes(op, name), strict=False):
            if isinstance(operand, ast.Name):
                summed.setdefault(operand.id, []).append(slope)
    return lines, [_sum(summed.get(argument, [_filled("grad * 0.0", {})])) for argument in arguments]


def _slopes(op: _Op, gradient: str) -> list[ast.expr]:
    slopes = _SLOPES.get(op.name) or (" * ".join(["g", f"{op.exponent}.0", *"a" * (op.exponent - 1)]),)
    return [op.filled(each, g=ast.Name(gradient)) for each in slopes]


def _sum(parts: Sequence[ast.expr]) -> ast.expr:
    return reduce(lambda left, right: ast.BinOp(left, ast.Add(), right), parts)


class _Filling(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._values.get(node.id, node)


def _filled(expression: str, values: Mapping[str, ast.expr]) -> ast.expr:
    """Return the tree of one of the expressions of this file, with nodes in place of its names."""
    tree: ast.expr = _Filling(values).visit(ast.parse(expression, mode="eval").body)
    return tree


def _function(
    name: str, arguments: Sequence[str], lines: Sequence[Line], results: Sequence[ast.expr], *, jit: bool = False
) -> ast.FunctionDef:
    wrong = [each for each in (name, *arguments) if not each.isidentifier()]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not an identifier.")
    taken = ast.arguments([], [ast.arg(each) for each in arguments], None, [], [], None, [])
    result = results[0] if len(results) == 1 else ast.Tuple(list(results))
    body = [*(ast.Assign([ast.Name(target)], value) for target, value in lines), ast.Return(result)]
    return ast.FunctionDef(name, taken, body, [ast.Attribute(ast.Name("triton"), "jit")] if jit else [])
