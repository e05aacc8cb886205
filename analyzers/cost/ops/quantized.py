"""GEMMs of quantized matrices, and GEMMs of libraries other than PyTorch, whose ops are in ops.toml.

Schemas: vLLM, csrc/torch_bindings.cpp; SGLang, sgl-kernel/csrc; AITER, aiter/ops/gemm_op_a8w8.py; bitsandbytes.
"""

from collections.abc import Sequence
from math import prod
from typing import Literal

from tracekit.analyzers.cost.ops.arguments import Arguments
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.gemm import fit, grouped, product
from tracekit.analyzers.cost.ops.registry import costs, formula
from tracekit.analyzers.cost.ops.tensors import DTYPES, FLOAT32, INT32, Kind, Tensor
from tracekit.analyzers.cost.ops.work import Precision, Product


def scaled_sizes(a: Tensor, b: Tensor, scales: Sequence[Tensor]) -> Product:
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
    return product(a, b, scaled_sizes(a, b, scales), *scales[:1], of_weights=of_weights, out=call.dtype(6))


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


_MOST_BITS = 8
_BF16 = DTYPES["bfloat16"]


@formula
def linear_of(call: Arguments, a: int, weight: int, result: Literal["", "int32", "float16"] = "") -> Cost:
    """a[m, k] by weight[n, k]; `result` is the type of the result, by default that of a."""
    left, right = call.tensor(a), call.tensor(weight)
    fit(len(right.shape) == 2 and left.shape[-1:] == right.shape[1:], call.name)
    work = Product(1, prod(left.shape[:-1]), right.shape[0], right.shape[1], weight="b")
    return product(left, right, work, out=DTYPES[result] if result else None)


@formula
def packed_linear(call: Arguments) -> Cost:
    """(a[m, k], weight[n, k], ...), or in vLLM (result, a, weight, bias, is_vnni)."""
    first = 1 if len(call) > 4 else 0
    return linear_of(call, first, first + 1)


@formula
def scaled_linear(call: Arguments, a: int, weight: int) -> Cost:
    """a[m, k] by weight[n, k] or [k, n], a square one may be either; then scales in fp32, that of a first. The result
    has the type of a, or is bf16 if that has 8 bits."""
    left, right = call.tensor(a), call.tensor(weight)
    fit(len(right.shape) == 2 and left.shape[-1] in right.shape, call.name)
    scales = [each for each in call.every(a + 1) if each.dtype == FLOAT32 and each.numel < right.numel]
    work = Product(1, prod(left.shape[:-1]), right.numel // left.shape[-1], left.shape[-1], weight="b")
    out = left.dtype if left.dtype.bytes > 1 else _BF16
    return product(left, right, work, *scales[:1], of_weights=scales[1:2], out=out)


@formula
def fp8_linear(call: Arguments) -> Cost:
    """(a[m, k], weights[n, k], scales ...), with a scale for each row and column or one: the result is bf16."""
    a, weights = call.tensor(0), call.tensor(1)
    fit(len(weights.shape) == 2 and a.shape[-1] == weights.shape[1], call.name)
    rows = a.like((prod(a.shape[:-1]), a.shape[-1]))
    scales = call.every(2, 4)
    work = scaled_sizes(rows, weights.like(weights.shape[::-1]), scales)
    return product(rows, weights, work, *scales[:1], of_weights=scales[1:], out=_BF16)


@formula
def scaled_product_into(call: Arguments) -> Cost:
    """(result[m, n], a[m, k], b[k, n], scales of a, scales of b, ...)."""
    out, a, b = (call.tensor(index) for index in range(3))
    fit(len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0], call.name)
    scales = call.every(3, 5)
    of_weights = [*scales[1:], *call.every(5)]
    return product(a, b, scaled_sizes(a, b, scales), *scales[:1], of_weights=of_weights, out=out.dtype)


@formula
def product_into(call: Arguments) -> Cost:
    """(result, a[m, k], b[k, n])."""
    out, a, b = (call.tensor(index) for index in range(3))
    return product(a, b, Product(1, a.shape[0], out.shape[-1], a.shape[-1], weight="b"), out=out.dtype)


@formula
def linear_by_handle(call: Arguments) -> Cost:
    """(result[m, n], a[m, k], bias, handler): the handler holds the weight, which has a's type."""
    out, a, bias = call.tensor(0), call.tensor(1), call.optional(2)
    weight, rows = a.like((out.shape[-1], a.shape[-1])), a.numel // max(1, a.shape[-1])
    work = Product(1, rows, out.shape[-1], a.shape[-1], bias=bias is not None, weight="b")
    return product(a, weight, work, of_weights=[bias], out=out.dtype)


@formula
def batched_fp8(call: Arguments) -> Cost:
    """(a[batch, m, k], b[batch, k, n], ...): the result is bf16."""
    a, b = call.tensor(0), call.tensor(1)
    fit(len(a.shape) == len(b.shape) == 3 and a.shape[-1] == b.shape[1], call.name)
    return product(a, b, Product(a.shape[0], a.shape[1], b.shape[-1], a.shape[-1]), out=_BF16)


@formula
def four_bits(call: Arguments, a: int, weight: int) -> Cost:
    """a[m, k / 2] by weights[n, k / 2], then both scales: two elements per byte; the result is bf16."""
    left, right = call.tensor(a), call.tensor(weight)
    fit(len(left.shape) == len(right.shape) == 2 and left.shape[1] in right.shape, call.name)
    work = Product(1, left.shape[0], right.numel // left.shape[1], 2 * left.shape[1], weight="b", stored="int4")
    scales = call.every(weight + 1, weight + 3)
    return product(left, right, work, *scales[:1], of_weights=scales[1:], out=_BF16, compute=_BF16)


@formula
def weights_in_four_bits(call: Arguments) -> Cost:
    """(a[m, k / 2] or [m, k], weights[n, k / 2], ...): two elements per byte."""
    a, weight = call.tensor(0), call.tensor(1)
    fit(len(weight.shape) == 2, call.name)
    inner = 2 * weight.shape[1]
    fit(a.shape[-1] in (inner, weight.shape[1]), call.name)
    work = Product(1, prod(a.shape[:-1]), weight.shape[0], inner, weight="b", stored="int4")
    return product(a, weight, work, of_weights=call.every(3, 4), out=_BF16, compute=_BF16)


@formula
def packed_product(call: Arguments, weights: int) -> Cost:
    """(activations, packed weights, ..., scales, ...): scales are the first matrix of numbers after the weights."""
    a, packed = call.tensor(0), call.tensor(weights)
    scales = next((each for each in call.every(weights + 1) if _is_matrix_of_numbers(each)), None)
    fit(scales is not None, call.name)
    assert scales is not None
    return _packed(call.name, a, packed, scales.shape[-1], [scales])


def _is_matrix_of_numbers(tensor: Tensor) -> bool:
    return len(tensor.shape) > 1 and tensor.dtype.kind == Kind.FLOAT


@formula
def ggml_product(call: Arguments) -> Cost:
    """(packed weights, inputs[m, k], type, rows of the weights)."""
    return _packed(call.name, call.tensor(1), call.tensor(0), call.integer(3))


def _packed(name: str, a: Tensor, packed: Tensor, columns: int, scales: Sequence[Tensor] = ()) -> Cost:
    """Return the cost of a by weights of which two share a byte if that is what their bytes say."""
    inner = a.shape[-1]
    bits = round(8 * packed.bytes / max(1, columns * inner))
    fit(not scales or 0 < bits <= _MOST_BITS, name)
    stored: Precision = "int4" if 2 * bits <= _MOST_BITS else "int8"
    work = Product(1, prod(a.shape[:-1]), columns, inner, weight="b", stored=stored)
    return product(a, packed, work, of_weights=scales, compute=a.dtype)


@formula
def gemv_4bit(call: Arguments) -> Cost:
    """(a[m, k], packed weights, their shape, scales, code, block size)."""
    a, packed, shape = call.tensor(0), call.tensor(1), call.integers(2)
    fit(shape is not None and len(shape) == 2 and shape[1] == a.shape[-1], call.name)
    assert shape is not None
    work = Product(1, prod(a.shape[:-1]), shape[0], shape[1], weight="b", stored="int4")
    return product(a, packed, work, of_weights=call.every(3, 5), compute=a.dtype)


@formula
def linear_layer(call: Arguments, norms: bool = False) -> Cost:
    """(weight, input, ...), or of a layer that norms first (input, norm's parameters, weight, ...)."""
    tensors = [each for each in call.every() if len(each.shape) >= 2]
    fit(len(tensors) > 1, call.name)
    first, others = tensors[0], [each for each in tensors[1:] if each.shape[-1] == tensors[0].shape[-1]]
    fit(bool(others), call.name)
    weight, x = (others[0], first) if norms else (first, others[0])
    fit(len(weight.shape) == 2, call.name)
    work = Product(1, prod(x.shape[:-1]), weight.shape[0], weight.shape[1], weight="b")
    return product(x, weight, work, out=x.dtype)
