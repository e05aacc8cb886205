"""FLOPs and compulsory bytes of an op call, from its recorded input shapes, types and values.

    cost_of_signature("aten::mm", "[[8,768],[768,2304]]", '["float","float"]', '["",""]').flops

An op without a formula (views, containers, communication) has no cost: None.
"""

from functools import lru_cache

from tracekit.analyzers.costs import (  # noqa: F401 (importing a family registers its formulas)
    attention,
    convolution,
    copies,
    embedding_tables,
    experts,
    gemm,
    indexing,
    losses,
    norm,
    optimizers,
    pointwise,
    pooling,
    quantized,
    reduction,
    serving_attention,
    serving_layers,
    softmax,
)
from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost, OpCall
from tracekit.analyzers.costs.parse import parse_call
from tracekit.analyzers.costs.registry import FORMULAS
from tracekit.analyzers.costs.tensors import MalformedCall

__all__ = ["Cost", "MalformedCall", "OpCall", "cost_of", "cost_of_signature", "parse_call"]


def cost_of(call: OpCall) -> Cost | None:
    """The cost of a call; None for an op without a formula, or whose recorded inputs do not determine it."""
    formula = FORMULAS.get(call.name)
    if formula is None:
        return None
    try:
        return formula(Arguments(call))
    except (ValueError, IndexError, ArithmeticError):  # MalformedCall, or sizes and dims that fit no call
        return None


@lru_cache(maxsize=1 << 16)
def cost_of_signature(
    name: str,
    shapes_json: str,
    dtypes_json: str,
    values_json: str = "",
    list_dtype: str | None = None,
    list_elements: int | None = None,
    strides_json: str = "",
) -> Cost | None:
    """`cost_of` the call recorded so; None also for text that is no signature. Never raises.

    Traces leave out the element type of lists of tensors (cat, _foreach_*), float32 unless `list_dtype` tells, and
    the shapes of lists with more than 30; give an optimizer's `list_elements`, the number of parameters, for those.
    """
    try:
        return cost_of(parse_call(name, shapes_json, dtypes_json, values_json, list_dtype, list_elements, strides_json))
    except MalformedCall:
        return None
