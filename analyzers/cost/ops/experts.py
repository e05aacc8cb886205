"""Mixtures of experts in vLLM, SGLang and AITER: routing, expert GEMMs, and the sum of their results.

Schemas: vLLM, csrc/moe/torch_bindings.cpp and vllm/model_executor/layers/fused_moe/fused_moe.py.
"""

from math import ceil

from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.gemm import fit
from tracekit.analyzers.cost.ops.registry import formula
from tracekit.analyzers.cost.ops.tensors import Kind, Tensor
from tracekit.analyzers.cost.ops.work import Precision, Product, Softmax, touched


@formula
def fused_experts(call: Arguments) -> Cost:
    """(hidden[tokens, k], w1[experts, n1, k], w2[experts, k, n2], weights, ids[tokens, chosen], ...).

    Each token is multiplied by two matrices of each chosen expert. The number of experts read is the mean number that
    this many tokens select, if each token chooses distinct experts.
    """
    hidden, w1, w2, ids = call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(4)
    fit(len(w1.shape) == len(w2.shape) == 3 and len(ids.shape) == 2 and w1.shape[0] == w2.shape[0], call.name)
    chosen = ids.numel
    flops = 2 * chosen * (w1.shape[1] * w1.shape[2] + w2.shape[1] * w2.shape[2])
    experts, apart = w1.shape[0], ids.shape[1]
    groups = touched(chosen, experts, apart)
    columns = w1.shape[1] + w2.shape[2]
    work = Product(
        groups, ceil(chosen / groups), columns, w1.shape[2], weight="b", routed=chosen, experts=experts, apart=apart
    )
    weights = Tensor((groups, w1.shape[1] * w1.shape[2] + w2.shape[1] * w2.shape[2]), w1.dtype)
    reads = [hidden, weights, call.optional(3), ids]
    return moves("gemm", flops, reads, [hidden], hidden.dtype, weight=weights, work=work)


@formula
def topk_softmax(call: Arguments, scores: int, earlier: bool = False) -> Cost:
    """Softmax over the experts, and the top k, whose tensors come before the scores. `earlier`: in earlier releases,
    ids of tokens come before them, too."""
    at = scores + (earlier and call.optional(scores + 1) is not None)
    x = call.tensor(at)
    best = call.every(0, at) or [x.like(x.shape[:1])]
    return moves("softmax", 5 * x.numel, [x], best, x.dtype, row=x.shape[-1], work=Softmax())


@formula
def align_blocks(call: Arguments) -> Cost:
    """(ids, experts, block_size, sorted_ids, expert_ids, padded, ...)."""
    ids = call.tensor(0)
    return moves("gather", 0, [ids], call.every(3, 6), ids.dtype, access="sort")


@formula
def moe_sum(call: Arguments, input: int, result: int) -> Cost:
    """Sums the rows of a token, input[tokens, chosen, hidden]."""
    x, out = call.tensor(input), call.tensor(result)
    return moves("reduction", x.numel, [x], [out], x.dtype, access="columns", row=x.shape[1] if len(x.shape) > 1 else 0)


_MOST_BITS = 8


@formula
def expert_product(call: Arguments, result: int, rows: int, weights: int) -> Cost:
    """rows[rows, k], sorted by expert, by weights[experts, ...] to result[rows, n]."""
    out, a = call.tensor(result), call.tensor(rows)
    columns = out.shape[-1]
    return _routed(a, call.tensor(weights), (out.numel // columns, columns, a.shape[-1]), out)


@formula
def marlin_experts(call: Arguments) -> Cost:
    """(rows, ..., weights[experts, ...], ..., block size, top k, ..., type, rows, n, k, ...)."""
    rows, weight = call.tensor(0), next(each for each in call.every(2) if len(each.shape) == _EXPERTS_RANK)
    first = next(index for index in range(len(call)) if isinstance(call.value(index), int))
    chosen = call.integer(first + 1)
    numbers = [index for index in range(first + 2, len(call)) if type(call.value(index)) is int]
    fit(len(numbers) > _SIZES, call.name)
    m, n, k = (call.integer(index) for index in numbers[1 : 1 + _SIZES])
    return _routed(rows, weight, (m * chosen, n, k), rows.like((m * chosen, n)), chosen)


_EXPERTS_RANK, _SIZES = 3, 3


def _routed(a: Tensor, weight: Tensor, sizes: tuple[int, int, int], result: Tensor, apart: int = 1) -> Cost:
    """Return the cost of a GEMM of as many rows, n and k, with the weights of the experts that the rows selected."""
    rows, columns, inner = sizes
    experts = weight.shape[0]
    groups = touched(rows, experts, apart)
    bits = round(8 * weight.bytes / max(1, experts * columns * inner))
    stored: Precision | None = None if bits >= _MOST_BITS else "int4"
    work = Product(
        groups,
        ceil(rows / groups),
        columns,
        inner,
        weight="b",
        stored=stored,
        routed=rows,
        experts=experts,
        apart=apart,
    )
    read = Tensor((groups, weight.numel // max(1, experts)), weight.dtype)
    computed = result.dtype if stored else a.dtype
    return moves("gemm", 2 * rows * columns * inner, [a, read], [result], computed, weight=read, work=work)


@formula
def sorted_experts(call: Arguments, weights: int) -> Cost:
    """(rows, weights of both GEMMs, sorted rows, experts, count, result, rows for each token, ...).

    Two elements in 4 bits share a byte. The first GEMM's weights hold the gate, too.
    """
    rows, weight, result, apart = call.tensor(0), call.tensor(weights), call.tensor(6), call.integer(7)
    first = weights == 1
    packed = max(1, (call.tensor(2).shape[1] if first else result.shape[-1]) // call.tensor(1).shape[-1])
    tokens = rows.shape[0] if first else rows.numel // (rows.shape[-1] * apart)
    return _routed(rows, weight, (tokens * apart, weight.shape[1], weight.shape[2] * packed), result, apart)


@formula
def both_products(call: Arguments) -> Cost:
    """(result[tokens, k], rows[tokens, k], gate and up[experts, 2 n, k], down[experts, k, n], ..., chosen, ...)."""
    result, rows, up, down = (call.tensor(index) for index in range(4))
    chosen = next(value for index in range(4, len(call)) if type(value := call.value(index)) is int)
    weight = Tensor((up.shape[0], up.shape[1] + down.shape[2], up.shape[2]), up.dtype)
    return _routed(rows, weight, (result.shape[0] * chosen, weight.shape[1], weight.shape[2]), result, chosen)


@formula
def fused_marlin(call: Arguments) -> Cost:
    """(hidden[tokens, k], packed weights of both GEMMs, ..., scales[experts, groups, n] of both, ..., ids, ...)."""
    hidden, weights = call.tensor(0), call.every(1, 3)
    scales = [each for each in call.every(3) if len(each.shape) == _EXPERTS_RANK and each.dtype.kind == Kind.FLOAT][:2]
    ids = [each for each in call.every(3) if each.dtype.kind == Kind.INTEGER and each.shape[:1] == hidden.shape[:1]]
    fit(len(weights) == len(scales) == 2 and len(ids) > 0, call.name)
    chosen, (both, k) = ids[-1], (each.shape[-1] for each in scales)
    experts, apart = weights[0].shape[0], chosen.shape[-1]
    groups, columns = touched(chosen.numel, experts, apart), both + both // 2
    read = Tensor((groups, sum(each.numel for each in weights) // experts), weights[0].dtype)
    work = Product(
        groups,
        ceil(chosen.numel / groups),
        columns,
        k,
        weight="b",
        stored="int4",
        routed=chosen.numel,
        experts=experts,
        apart=apart,
    )
    flops = 2 * chosen.numel * columns * k
    return moves("gemm", flops, [hidden, read, chosen], [hidden], hidden.dtype, weight=read, work=work)


@formula
def shuffle_rows(call: Arguments, map: int, result: int) -> Cost:
    """Reads as many rows as it writes."""
    places, out = call.tensor(map), call.tensor(result)
    return moves("gather", 0, [out, places], [out], out.dtype, access="indexed")


@formula
def fused_gate(call: Arguments) -> Cost:
    """(scores[tokens, experts], bias, groups, chosen groups, chosen, ...): weights and ids are not among the inputs."""
    scores = call.tensor(0)
    best = scores.like((*scores.shape[:-1], 2 * call.integer(4, 1)))
    reads = [scores, call.optional(1)]
    return moves("softmax", 5 * scores.numel, reads, [best], scores.dtype, row=scores.shape[-1], work=Softmax())
