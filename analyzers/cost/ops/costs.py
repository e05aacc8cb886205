"""FLOPs and compulsory bytes of an op call, from its recorded input shapes, types and values.

    cost_of_signature("aten::mm", "[[8,768],[768,2304]]", '["float","float"]', '["",""]').flops

An op without a formula (views, containers, communication) has no cost: None.
"""

from functools import lru_cache

from tracekit.analyzers.cost.ops import (  # noqa: F401 (importing a family registers its formulas)
    aiter,
    attention,
    convolution,
    copies,
    embedding_tables,
    experts,
    fused_layers,
    gemm,
    indexing,
    norm,
    pointwise,
    quantized,
    reduction,
    sampling,
    serving_caches,
    serving_layers,
    sparse_features,
    training,
)
from tracekit.analyzers.cost.ops.arguments import FORMULAS, Arguments, parse_call
from tracekit.analyzers.cost.ops.call import Cost, OpCall
from tracekit.analyzers.cost.ops.tensors import MalformedCall

__all__ = ["Cost", "MalformedCall", "OpCall", "cost_of", "cost_of_signature", "parse_call"]


def cost_of(call: OpCall) -> Cost | None:
    """Return the cost of a call; None for an op without a formula, or if its recorded inputs do not determine it."""
    formula = FORMULAS.get(call.name)
    if formula is None:
        return None
    try:
        return formula(Arguments(call))
    except (ValueError, IndexError, ArithmeticError, StopIteration):  # MalformedCall, or invalid or missing arguments
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
    """Return the `cost_of` a call from its recorded signature; None also for text that is no signature. Never raises.

    Traces do not record the element type of tensor lists (cat, _foreach_*), assumed to be float32 unless `list_dtype`
    is given, nor the shapes of lists with more than 30 tensors. For these, an optimizer needs `list_elements`, the
    number of parameters.
    """
    try:
        return cost_of(parse_call(name, shapes_json, dtypes_json, values_json, list_dtype, list_elements, strides_json))
    except MalformedCall:
        return None
