"""Reasons why the measured FLOPs or bytes of an op differ from its formula, by (label, op); "" for all ops of a
label."""

_TILE = "a tile has 8 columns or more for one row"
_PASSES = "rows too long for shared memory are read again, for each pass"
_ROOT = "a root or a quotient is several instructions"

CAUSES = {
    ("add", ""): "a + alpha·b is a multiply-add",
    ("bias_row", ""): "a + alpha·b is a multiply-add",
    ("gelu", ""): "an error function is several instructions",
    ("where_mask", ""): "what a causal mask hides is not loaded",
    ("sum_last", ""): "what threads added up is added again",
    ("argmax_last", ""): "comparisons are no FLOPs to the counters",
    ("var_mean", ""): "one pass, with a division an element",
    ("layer_norm", ""): "one pass, with a division an element",
    ("softmax", ""): "an exponential is several instructions",
    ("layer_norm_bwd", ""): "two kernels, each of which reads both inputs",
    ("log_softmax", ""): _PASSES,
    ("cross_entropy", "_log_softmax"): _PASSES,
    ("cross_entropy", "_log_softmax_backward_data"): _PASSES,
    ("cross_entropy", "nll_loss_forward"): "an element brings its sector of 32 bytes, and the next",
    ("cross_entropy", "nll_loss_backward"): "a few kB: parameters and code of the kernel",
    ("embedding_bwd", "embedding_dense_backward"): "partial sums are written, and read again",
    ("scatter_add", ""): "the L2 adds, which the counters do not see",
    ("adamw_fused", "_foreach_add_"): "a few kB: parameters and code of the kernel",
    ("adamw_fused", "_fused_adamw_"): _ROOT,
    ("adamw_foreach", "_foreach_sqrt"): _ROOT,
    ("adamw_foreach", "_foreach_div_"): _ROOT,
    ("adamw_foreach", "_foreach_addcdiv_"): _ROOT,
    ("mm_fp32", ""): "each thread adds up a part of a row; then these are added",
    ("mm_bf16", ""): _TILE,
    ("addmm_bf16", ""): _TILE,
    ("int4_weight", ""): "weights are turned into bf16",
    ("flash_prefill", ""): "tiles on the diagonal in full; exponentials",
    ("efficient_prefill", ""): "tiles on the diagonal in full; exponentials",
    ("cudnn_prefill", ""): "tiles on the diagonal in full; exponentials",
    ("efficient_fp32_prefill", ""): "three TF32 products make one of fp32",
    ("flash_decode", ""): "a tile has 128 rows for one query",
    ("cudnn_decode", ""): "a tile has 16 rows for one query",
}


def cause(label: str, op: str) -> str:
    return CAUSES.get((label, op)) or CAUSES.get((label, ""), "")
