"""Compiled graphs, in which what surrounds packed layers becomes part of their kernel. Importing this needs torch.

`torch.compile` cannot look into the kernel of a packed layer. So patterns are added to those of its compiler: an RMS
norm before a layer, a gate or a residual after it. They match nothing else than the op of packed layers.
"""

import operator
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import fx


@torch.library.custom_op("tracekit::weight_only_block", mutates_args=())
def _block(
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
    bits: int,
    gain: torch.Tensor | None,
    epsilon: float,
    gated: bool,
    residual: torch.Tensor | None,
    ahead: Sequence[torch.Tensor],
) -> torch.Tensor:
    from tracekit.fuse import weight_only_block as kernel

    multiply = kernel.fused if x.is_cuda else kernel.reference
    out: torch.Tensor = multiply(x, packed, scale, bias, bits, gain, epsilon, gated, residual, ahead)
    return out


@_block.register_fake
def _shaped(x: Any, packed: Any, *rest: Any) -> Any:
    return x.new_empty(*x.shape[:-1], len(packed) // (2 if rest[_ARGUMENTS.index("gated") - 2] else 1))


_ARGUMENTS = ("x", "packed", "scale", "bias", "bits", "gain", "epsilon", "gated", "residual", "ahead")
_BLOCK = torch.ops.tracekit.weight_only_block.default


@cache
def register(product: Any) -> None:
    """Add the patterns to those of inductor; `product` is the op of packed layers, which it keeps as it is without
    them."""
    try:
        from torch._inductor.fx_passes.post_grad import pass_patterns
        from torch._inductor.pattern_matcher import register_graph_pattern
    except ImportError:
        return
    for place, (pattern, rewrite) in _patterns(product):
        register_graph_pattern(pattern, pass_dict=pass_patterns[place])(rewrite)


def _patterns(product: Any) -> Any:
    from torch._inductor.pattern_matcher import MULTIPLE, CallFunction, KeywordArg

    aten, convert = torch.ops.aten, torch.ops.prims.convert_element_type.default

    def call(op: Any, *args: Any, users: Any = 1) -> Any:
        return CallFunction(op, *args, _users=users)

    def named(*names: str) -> list[Any]:
        return [KeywordArg(name) for name in names]

    weights = named("packed", "scale", "bias", "bits")
    wide = call(convert, KeywordArg("x"), torch.float32, users=2)
    mean = call(aten.mean.dim, call(aten.pow.Tensor_Scalar, wide, 2), [-1], True)
    normed = call(aten.mul.Tensor, wide, call(aten.rsqrt.default, call(aten.add.Tensor, mean, KeywordArg("epsilon"))))
    narrow = call(convert, normed, KeywordArg("dtype"), users=MULTIPLE)
    gained = call(aten.mul.Tensor, KeywordArg("gain"), narrow, users=MULTIPLE)
    yield 0, (call(product, gained, *weights, users=MULTIPLE), _with_norm)
    yield 0, (call(product, KeywordArg("x"), *weights, users=MULTIPLE), _alone)
    block = call(_BLOCK, *named(*_ARGUMENTS))
    halves = call(aten.split_with_sizes.default, block, KeywordArg("sizes"), -1, users=2)
    gate = call(convert, call(operator.getitem, halves, 0), torch.float32, users=2)
    sigmoid = call(aten.add.Tensor, call(aten.exp.default, call(aten.neg.default, gate)), 1)
    silu = call(convert, call(aten.div.Tensor, gate, sigmoid), KeywordArg("dtype"))
    yield 1, (call(aten.mul.Tensor, silu, call(operator.getitem, halves, 1), users=MULTIPLE), _with_gate)
    yield 1, (call(aten.add.Tensor, KeywordArg("added"), block, users=MULTIPLE), _with_residual)
    yield 2, (call(_BLOCK, *named(*_ARGUMENTS), users=MULTIPLE), _ahead)


def _with_norm(match: Any, dtype: Any, **found: Any) -> None:
    x, gain = found["x"], found["gain"]
    if _few(x) and _type(gain) == dtype == _type(x) and gain.meta["val"].dim() == 1:
        _replace(match, found | {"gated": False, "residual": None, "ahead": []})


def _alone(match: Any, **found: Any) -> None:
    if _few(found["x"]):
        _replace(match, found | {"gain": None, "epsilon": 0.0, "gated": False, "residual": None, "ahead": []})


def _with_gate(match: Any, sizes: Any, dtype: Any, **found: Any) -> None:
    free = found["bias"] is found["residual"] is None and not found["gated"]
    if free and len(sizes) == 2 and sizes[0] == sizes[1] and dtype == _type(found["x"]):
        _replace(match, found | {"gated": True})


def _with_residual(match: Any, added: Any, **found: Any) -> None:
    out, same = match.output_node().meta["val"], getattr(added, "meta", {}).get("val")
    free = found["residual"] is None and not found["gated"]
    if free and same is not None and (same.shape, same.dtype) == (out.shape, out.dtype):
        _replace(match, found | {"residual": added})


def _few(x: Any) -> bool:
    """Return whether a node has as few rows as the kernel multiplies, whatever the sizes of inputs are."""
    from tracekit.fuse import weight_only_product as kernel

    rows = x.meta["val"].numel() // x.meta["val"].shape[-1]
    return isinstance(rows, int) and 0 < rows <= kernel.MOST_ROWS


def _type(node: fx.Node) -> torch.dtype:
    found: torch.dtype = node.meta["val"].dtype
    return found


def _replace(match: Any, arguments: dict[str, Any]) -> None:
    """Call the op with these arguments in place of what was matched."""
    node = match.output_node()
    with node.graph.inserting_before(node):
        new = node.graph.call_function(_BLOCK, tuple(arguments[name] for name in _ARGUMENTS))
    new.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(new)
    for each in reversed(match.nodes):
        if not each.users:
            each.graph.erase_node(each)


def _ahead(match: Any, **_: Any) -> None:
    """Let a layer whose result goes elsewhere first, such as into attention, ask for the weights of the next ones."""
    node = match.output_node()
    later, each = [], node.next
    while each.op != "output":
        later += [each] if each.target is _BLOCK else []
        each = each.next
    if later and node not in later[0].all_input_nodes and later[0].args[0] is not node.args[0]:
        asked = [part for each in later[:2] for part in each.args[1:3] if part.op == "placeholder"]
        node.args = (*node.args[:-1], asked)
