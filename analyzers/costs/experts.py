"""Mixtures of experts in vLLM and SGLang: routing, expert GEMMs, and the sum of their results.

Schemas: vLLM, csrc/moe/torch_bindings.cpp and vllm/model_executor/layers/fused_moe/fused_moe.py.
"""

from math import ceil

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.gemm import fit
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import Tensor
from tracekit.analyzers.costs.work import Product, Softmax, touched


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
