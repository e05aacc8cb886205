"""GEMMs of quantized matrices."""

from collections.abc import Sequence
from math import prod

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.dtypes import INT32
from tracekit.analyzers.costs.gemm import fit, grouped, product
from tracekit.analyzers.costs.registry import costs
from tracekit.analyzers.costs.tensors import Tensor
from tracekit.analyzers.costs.work import Product


def scaled_product(a: Tensor, b: Tensor, scales: Sequence[Tensor]) -> Product:
    """Return the cost of a GEMM of matrices with one scale each, or one per row of `a` and column of `b`."""
    m, n = a.shape[0], b.shape[1]
    by_row = len(scales) > 1 and (scales[0].numel, scales[1].numel) == (m, n) and max(m, n) > 1
    return Product(1, m, n, a.shape[1], weight="b", row_scales=by_row)


@costs("aten::_scaled_mm")
def scaled_mm(call: Arguments) -> Cost:
    """(a, b, scales of a, scales of b, bias, scale of the result, type)."""
    a, b = call.tensor(0), call.tensor(1)
    fit(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0], call.name)
    scales = call.every(2, 4)
    of_weights = [*scales[1:], *call.every(4, 6)]
    return product(a, b, scaled_product(a, b, scales), *scales[:1], of_weights=of_weights, out=call.dtype(6))


@costs("aten::_scaled_grouped_mm")
def scaled_grouped_mm(call: Arguments) -> Cost:
    scales = call.every(2, 4)
    return grouped(call, call.optional(4), *scales, *call.every(5, 7), out=call.dtype(7))


@costs("aten::_int_mm")
def int_mm(call: Arguments) -> Cost:
    a, b = call.tensor(0), call.tensor(1)
    fit(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0], call.name)
    return product(a, b, Product(1, a.shape[0], b.shape[1], a.shape[1], weight="b"), out=INT32)


@costs("aten::_weight_int8pack_mm")
def weight_int8pack_mm(call: Arguments) -> Cost:
    """a[m, k] by int8 weights[n, k] with a scale per row; the weights are converted to a's type first."""
    a, weight, scales = call.tensor(0), call.tensor(1), call.tensor(2)
    fit(len(a.shape) == len(weight.shape) == 2 and a.shape[1] == weight.shape[1], call.name)
    work = Product(1, a.shape[0], weight.shape[0], a.shape[1], weight="b", stored="int8")
    return product(a, weight, work, of_weights=[scales], compute=a.dtype)


@costs("aten::_weight_int4pack_mm", "aten::_weight_int4pack_mm_for_cpu")
def weight_int4pack_mm(call: Arguments) -> Cost:
    """a[m, k] by packed int4 weights, with a scale and a zero point per group: scales[k / group, n, 2]."""
    a, weight, scales = call.tensor(0), call.tensor(1), call.tensor(3)
    fit(len(scales.shape) == 3, call.name)
    work = Product(1, prod(a.shape[:-1]), scales.shape[1], a.shape[-1], weight="b", stored="int4")
    return product(a, weight, work, of_weights=[scales], compute=a.dtype)
