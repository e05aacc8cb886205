"""Norms, activations, rotary embeddings and conversions of libraries other than PyTorch: ops.toml has their ops.

Schemas: vLLM, csrc/torch_bindings.cpp (the first input of most ops is the result); SGLang, sgl-kernel/csrc; AITER,
aiter/ops (norm.py, rmsnorm.py, activation.py, quant.py); Liger, Apex and Transformer Engine: their autograd functions.
"""

from math import log2

from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Access, Cost, Family
from tracekit.analyzers.cost.ops.gemm import fit
from tracekit.analyzers.cost.ops.registry import formula
from tracekit.analyzers.cost.ops.tensors import DTYPES, FLOAT32, Tensor
from tracekit.analyzers.cost.ops.work import Lookup, Norm, Softmax

_RMS_FLOPS = 4
"""FLOPs per element: square and sum 2, scale 1, weight 1. Norms with more subtract the mean."""
_ROTARY_FLOPS = 3
"""FLOPs per rotated element: two multiplications and an addition."""
_BYTE, _FP16 = DTYPES["uint8"], DTYPES["float16"]
_CACHE_RANK = 4
"""Number of dimensions of caches, and of queries and keys with their heads."""
_GROUP = 16
"""Elements of four bits for each scale."""
_ALL = 999


@formula
def each_once(call: Arguments, family: Family = "pointwise", access: Access = "linear", flops: int = 0) -> Cost:
    """Reads or writes each tensor once, with `flops` for each element of the largest one."""
    tensors = call.every()
    fit(len(tensors) > 0, call.name)
    largest = max(tensors, key=lambda each: each.numel)
    row = largest.shape[-1] if largest.shape and family == "reduction" else 0
    return moves(family, flops * largest.numel, tensors, [], largest.dtype, access=access, row=row)


@formula
def lower_bound(call: Arguments, family: Family, inputs: int = _ALL, results: int = 0) -> Cost:
    """Reads the tensors of the first `inputs`, and writes as many as `results` of them: what else the op reads (states,
    weights, a cache) is not among its inputs, so bytes are a lower bound and FLOPs are unknown."""
    read = call.every(0, inputs)
    fit(len(read) > 0, call.name)
    work = Lookup(True) if family == "embedding" else None
    return moves(family, 0, read, read[:results], read[0].dtype, work=work, estimated=True)


@formula
def elementwise(
    call: Arguments, input: int, result: int = -1, scales: int = -1, smoothing: int = -1, flops: int = 1
) -> Cost:
    """Reads one tensor, and writes another of any type, with its scales if it quantizes."""
    x = call.tensor(input)
    written = [call.named(result), call.optional(scales)]
    return moves("pointwise", flops * x.numel, [x, call.optional(smoothing)], written, x.dtype)


@formula
def rms_norm_into(call: Arguments, input: int, weight: int, residual: int = -1, result: int = -1) -> Cost:
    """Adds a residual, if any, which it updates; the result may be quantized. Without a result, in place."""
    x, scale, added, out = call.tensor(input), call.tensor(weight), call.named(residual), call.named(result)
    flops = (_RMS_FLOPS + (added is not None)) * x.numel
    written = [out or x, added]
    kind = Norm(False)
    return moves("norm", flops, [x, added, scale], written, x.dtype, row=scale.numel, work=kind, shared=[scale])


@formula
def norm_with_weight(call: Arguments, flops: int) -> Cost:
    """(input, weight, ...), or (result, input, weight, ...): the weight is the first row."""
    tensors = call.every()
    weight = next((each for each in tensors if len(each.shape) == 1), None)
    x = tensors[0]
    return moves("norm", flops * x.numel, [x, weight], [x], x.dtype, row=x.shape[-1], work=Norm(flops > _RMS_FLOPS))


@formula
def norm_into(call: Arguments, flops: int, results: int) -> Cost:
    """(result, input, the sum's summand and result if it adds one, scales if it quantizes, weight, ...)."""
    tensors = call.every()
    out, x = tensors[0], tensors[1]
    reads = [x] * results + [each for each in tensors[2:] if each.shape == x.shape[-1:]][:2]
    written, kind = [out, *[x] * (results - 1)], Norm(flops > _RMS_FLOPS)
    return moves("norm", (flops + results - 1) * x.numel, reads, written, x.dtype, row=x.shape[-1], work=kind)


@formula
def norm_in_place(call: Arguments, flops: int) -> Cost:
    """(input, [residual], weight, ...): every tensor of the input's shape is written."""
    tensors = call.every()
    x = tensors[0]
    whole = [each for each in tensors if each.shape == x.shape]
    row = max((each.numel for each in tensors[1:] if each.numel < x.numel), default=x.shape[-1])
    return moves("norm", flops * x.numel, tensors, whole, x.dtype, row=row, work=Norm(flops > _RMS_FLOPS))


@formula
def norm_and_rotate(call: Arguments) -> Cost:
    """(queries, keys and values, ...): norms and rotates queries and keys in place; values stay."""
    heads = [call.integer(index) for index in (1, 2, 3)]
    qkv = call.tensor(0)
    rotated = qkv.like((qkv.numel * sum(heads[:2]) // max(1, sum(heads)),))
    flops = (_RMS_FLOPS + _ROTARY_FLOPS) * rotated.numel
    return moves("norm", flops, [rotated], [rotated], qkv.dtype, work=Norm(False))


@formula
def gated_activation(call: Arguments, result: int, input: int, flops: int) -> Cost:
    """Multiplies the activation of one half of the input, [..., 2 d], by the other half."""
    out, x = call.tensor(result), call.tensor(input)
    return moves("pointwise", flops * out.numel, [x], [out], x.dtype)


@formula
def activation_times(call: Arguments, gate: int, values: int, flops: int) -> Cost:
    x, factor = call.tensor(gate), call.tensor(values)
    return moves("pointwise", flops * x.numel, [x, factor], [x], x.dtype)


@formula
def rotary(
    call: Arguments,
    query: int,
    key: int,
    table: int,
    positions: int,
    rotated_query: int = -1,
    rotated_key: int = -1,
) -> Cost:
    """Rotates queries and, if any, keys. Without places for the rotated ones, in place."""
    inputs = [each for each in map(call.optional, (query, key)) if each]
    results = [each for each in map(call.optional, (rotated_query, rotated_key)) if each] or inputs
    places, angles = call.tensor(positions), call.tensor(table)
    touched = angles.like((min(places.numel, angles.shape[0]), *angles.shape[1:]))
    flops = _ROTARY_FLOPS * sum(each.numel for each in inputs)
    return moves("pointwise", flops, [places, touched, *inputs], results, inputs[0].dtype, access="indexed")


@formula
def rotate_halves(call: Arguments) -> Cost:
    """(results ..., inputs ..., tables, positions): half of the tensors with heads are results."""
    tensors = call.every()
    rotated = [each for each in tensors if len(each.shape) == _CACHE_RANK and each.shape[-2] > 1]
    fit(len(rotated) > 1, call.name)
    out = rotated[: len(rotated) // 2]
    reads = [*rotated[len(out) :], *(Tensor((out[0].numel // out[0].shape[-2],), out[0].dtype) for _ in range(2))]
    return moves("pointwise", _ROTARY_FLOPS * sum(each.numel for each in out), reads, out, out[0].dtype)


@formula
def rotate_in_place(call: Arguments, rotated: int) -> Cost:
    """(query, [key], tables ...): the first tensors, as many as `rotated`."""
    tensors = call.every(0, rotated)
    flops = _ROTARY_FLOPS * sum(each.numel for each in tensors)
    return moves("pointwise", flops, call.every(), tensors, call.tensor(0).dtype)


@formula
def fused_cross_entropy(call: Arguments, logits: int, targets: int) -> Cost:
    """Writes the gradient over the logits."""
    x = call.tensor(logits)
    return moves("loss", 8 * x.numel, [x, x, call.optional(targets)], [x], x.dtype, row=x.shape[-1])


@formula
def scaled_softmax(call: Arguments, scores: int, mask: int) -> Cost:
    x = call.tensor(scores)
    return moves("softmax", 6 * x.numel, [x, call.optional(mask)], [x], x.dtype, row=x.shape[-1], work=Softmax())


@formula
def repetition_penalties(call: Arguments) -> Cost:
    """(logits, masks of prompt and output, penalties): in place."""
    logits = call.tensor(0)
    return moves("pointwise", 2 * logits.numel, call.every(0, 4), [logits], logits.dtype)


@formula
def greedy_argmax(call: Arguments) -> Cost:
    """(logits[rows, vocabulary])."""
    x = call.tensor(0)
    return moves("reduction", x.numel, [x], [Tensor(x.shape[:-1], FLOAT32)], x.dtype, access="search", row=x.shape[-1])


@formula
def largest_of_rows(call: Arguments, logits: int, indices: int) -> Cost:
    x = call.tensor(logits)
    return moves("reduction", x.numel, [x], [call.tensor(indices)], x.dtype, access="top-k", row=x.shape[-1])


@formula
def convolve_states(call: Arguments, inputs: int, weights: int) -> Cost:
    """Each channel with its own few weights, in place; the states that are kept are small."""
    x, weight = call.tensor(inputs), call.tensor(weights)
    return moves("convolution", 2 * weight.shape[-1] * x.numel, [x, weight], [x], x.dtype, weight=weight)


@formula
def hadamard(call: Arguments) -> Cost:
    """(values, in place): a sum for each element and each doubling of the row."""
    x = call.tensor(0)
    return moves("pointwise", round(x.numel * log2(max(2, x.shape[-1]))), [x], [x], x.dtype)


@formula
def narrowed(call: Arguments, bits: int) -> Cost:
    """(input, ...): `bits` for each element of the result, which is no input; its scales are small."""
    x = call.tensor(0)
    return moves("pointwise", 3 * x.numel, [x], [Tensor((x.numel * bits // 8,), _BYTE)], x.dtype)


@formula
def quantized_rows(call: Arguments) -> Cost:
    """(input, ...): the result, and a scale for each row, are not among the inputs."""
    x = call.tensor(0)
    result = x.like(dtype=_BYTE), Tensor((x.numel // max(1, x.shape[-1]),), FLOAT32)
    return moves("pointwise", 3 * x.numel, [x], result, x.dtype)


@formula
def quantized_in_four_bits(call: Arguments) -> Cost:
    """Reads or writes each tensor once; the largest one is the input."""
    x = max(call.every(), key=lambda each: each.bytes)
    result = Tensor((x.numel // 2,), _BYTE), Tensor((x.numel // _GROUP,), _BYTE)
    return moves("pointwise", 3 * x.numel, [x], result, x.dtype)


@formula
def dequantize(call: Arguments, scales: int, dtype: int, shape: int = -1) -> Cost:
    """(packed weights, scales, ...): weights in the requested type; half precision if it is not recorded."""
    packed = call.tensor(0)
    widened = Tensor(call.integers(shape) or packed.shape, call.dtype(dtype) or _FP16)
    return moves("pointwise", 2 * widened.numel, [packed, call.tensor(scales)], [widened], widened.dtype)


@formula
def awq_dequantize(call: Arguments) -> Cost:
    """(packed weights, scales, zero points, ...): weights in the type of the scales."""
    packed, scales = call.tensor(0), call.tensor(1)
    widened = scales.like((packed.shape[0], scales.shape[-1]))
    return moves("pointwise", 2 * widened.numel, call.every(0, 3), [widened], scales.dtype)


@formula
def ggml_dequantize(call: Arguments) -> Cost:
    """(packed weights, type, rows, columns, ...): the result is fp16."""
    packed = call.tensor(0)
    widened = Tensor((call.integer(2), call.integer(3)), _FP16)
    return moves("pointwise", 2 * widened.numel, [packed], [widened], widened.dtype)


@formula
def int8_result(call: Arguments) -> Cost:
    """(products[m, n], scales of rows, scales of columns, type, bias)."""
    x = call.tensor(0)
    scales = [each for each in call.every(1) if each.dtype == FLOAT32]
    return moves("pointwise", 3 * x.numel, [x, *scales], [x.like(dtype=call.dtype(3) or _FP16)], FLOAT32)
