"""Mixtures of experts in vLLM and SGLang: routing, expert GEMMs, and the sum of their results.

Schemas: vLLM, csrc/moe/torch_bindings.cpp and vllm/model_executor/layers/fused_moe/fused_moe.py.
"""

from math import ceil

from tracekit.analyzers.cost.ops.arguments import Arguments, costs, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.gemm import fit
from tracekit.analyzers.cost.ops.tensors import Kind, Tensor
from tracekit.analyzers.cost.ops.work import Precision, Product, Softmax, touched


@costs("vllm::inplace_fused_experts", "vllm::outplace_fused_experts", "vllm::fused_experts")
@costs("sglang::inplace_fused_experts", "sglang::outplace_fused_experts", "vllm::rocm_aiter_fused_moe")
@costs("aiter::fused_moe_")
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


@costs("vllm::moe_forward", "vllm::moe_forward_shared")
def moe_forward(call: Arguments) -> Cost:
    """(hidden, router_logits, layer_name): experts are not among the inputs, so bytes are a lower bound."""
    hidden = call.tensor(0)
    return moves("gemm", 0, [hidden, call.optional(1)], [hidden], hidden.dtype, estimated=True)


@costs("_moe_C::topk_softmax", "_moe_C::topk_sigmoid", at=3)
@costs("sgl_kernel::topk_softmax", "sgl_kernel::topk_sigmoid", at=2)
@costs("_moe_C::grouped_topk", at=0)
def topk_softmax(call: Arguments, at: int) -> Cost:
    """Softmax over the experts, and the top k. `at` is the position of the scores."""
    at += call.optional(at + 1) is not None and call.name.startswith("sgl_kernel")  # before 2025, ids of tokens, too
    scores = call.tensor(at)
    best = call.every(0, at) or [scores.like(scores.shape[:1])]
    return moves("softmax", 5 * scores.numel, [scores], best, scores.dtype, row=scores.shape[-1], work=Softmax())


@costs("_moe_C::moe_align_block_size", "_moe_C::sgl_moe_align_block_size", "sgl_kernel::moe_align_block_size")
def align_blocks(call: Arguments) -> Cost:
    """(ids, experts, block_size, sorted_ids, expert_ids, padded, ...)."""
    ids = call.tensor(0)
    return moves("gather", 0, [ids], call.every(3, 6), ids.dtype, access="sort")


@costs("_moe_C::moe_sum", "sgl_kernel::moe_sum", "sgl_kernel::moe_sum_reduce")
def moe_sum(call: Arguments) -> Cost:
    """(input[tokens, chosen, hidden], output)."""
    x, out = call.tensor(0), call.tensor(1)
    return moves("reduction", x.numel, [x], [out], x.dtype, access="columns", row=x.shape[1] if len(x.shape) > 1 else 0)


_MOST_BITS = 8


@costs("_C::cutlass_moe_mm", "_C::cutlass_blockwise_scaled_grouped_mm", out=0, a=1, weights=2)
@costs("_C::cutlass_w4a8_moe_mm", "sgl_kernel::cutlass_w4a8_moe_mm", out=0, a=1, weights=2)
@costs("_C::cutlass_fp4_group_mm", "_C::cutlass_fp4_moe_mm", "sgl_kernel::cutlass_fp4_group_mm", out=0, a=1, weights=2)
@costs("sgl_kernel::fp8_blockwise_scaled_grouped_mm", out=0, a=6, weights=7)
@costs("_C::cutlass_mxfp8_grouped_mm", out=4, a=0, weights=1)
@costs("_moe_C::moe_wna16_gemm", out=1, a=0, weights=2)
def expert_product(call: Arguments, out: int, a: int, weights: int) -> Cost:
    """(result[rows, n], rows[rows, k], weights[experts, ...], ...): rows are sorted by expert."""
    result, rows, weight = call.tensor(out), call.tensor(a), call.tensor(weights)
    columns = result.shape[-1]
    return _routed(rows, weight, (result.numel // columns, columns, rows.shape[-1]), result)


@costs("_moe_C::moe_wna16_marlin_gemm", "sgl_kernel::moe_wna16_marlin_gemm")
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


@costs("aiter::ck_moe_stage1", weights=1)
@costs("aiter::ck_moe_stage2", weights=2)
def sorted_experts(call: Arguments, weights: int) -> Cost:
    """(rows, weights of both GEMMs, sorted rows, experts, count, result, rows for each token, ...).

    Two elements in 4 bits share a byte. The first GEMM's weights hold the gate, too.
    """
    rows, weight, result, apart = call.tensor(0), call.tensor(weights), call.tensor(6), call.integer(7)
    first = weights == 1
    packed = max(1, (call.tensor(2).shape[1] if first else result.shape[-1]) // call.tensor(1).shape[-1])
    tokens = rows.shape[0] if first else rows.numel // (rows.shape[-1] * apart)
    return _routed(rows, weight, (tokens * apart, weight.shape[1], weight.shape[2] * packed), result, apart)


@costs("aiter::fmoe_g1u1", "aiter::fmoe_fp8_blockscale_g1u1")
def both_products(call: Arguments) -> Cost:
    """(result[tokens, k], rows[tokens, k], gate and up[experts, 2 n, k], down[experts, k, n], ..., chosen, ...)."""
    result, rows, up, down = (call.tensor(index) for index in range(4))
    chosen = next(value for index in range(4, len(call)) if type(value := call.value(index)) is int)
    weight = Tensor((up.shape[0], up.shape[1] + down.shape[2], up.shape[2]), up.dtype)
    return _routed(rows, weight, (result.shape[0] * chosen, weight.shape[1], weight.shape[2]), result, chosen)


@costs("vllm::fused_marlin_moe")
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


@costs("_moe_C::moe_permute", "_moe_C::moe_unpermute", "sgl_kernel::apply_shuffle_mul_sum")
@costs("_C::get_cutlass_moe_mm_data", "_C::get_cutlass_pplx_moe_mm_data", "sgl_kernel::prepare_moe_input")
@costs("_moe_C::batched_moe_align_block_size", "_moe_C::moe_lora_align_block_size", "_C::mxfp8_experts_quant")
@costs("sgl_kernel::get_cutlass_w4a8_moe_mm_data")
def reorder(call: Arguments) -> Cost:
    """Reads or writes each tensor once."""
    tensors = call.every()
    fit(len(tensors) > 0, call.name)
    largest = max(tensors, key=lambda each: each.numel)
    return moves("gather", 0, tensors, [], largest.dtype, access="indexed")


@costs("_moe_C::shuffle_rows", "sgl_kernel::shuffle_rows")
def shuffle_rows(call: Arguments) -> Cost:
    """(input, map, output): reads as many rows as it writes."""
    places, out = call.tensor(1), call.tensor(2)
    return moves("gather", 0, [out, places], [out], out.dtype, access="indexed")


@costs("sgl_kernel::moe_fused_gate")
def fused_gate(call: Arguments) -> Cost:
    """(scores[tokens, experts], bias, groups, chosen groups, chosen, ...): weights and ids are not among the inputs."""
    scores = call.tensor(0)
    best = scores.like((*scores.shape[:-1], 2 * call.integer(4, 1)))
    reads = [scores, call.optional(1)]
    return moves("softmax", 5 * scores.numel, reads, [best], scores.dtype, row=scores.shape[-1], work=Softmax())
