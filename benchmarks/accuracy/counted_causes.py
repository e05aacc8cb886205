"""Reasons why the measured FLOPs or bytes of an op differ from its formula, by (label, op); "" for all ops of a
label."""

_TILE = "a tile has at least 8 columns for one row"
_PASSES = "rows too long for shared memory are read again, for each pass"
_ROOT = "a square root or a division is several instructions"

CAUSES = {
    ("add", ""): "a + alpha·b is a multiply-add",
    ("bias_row", ""): "a + alpha·b is a multiply-add",
    ("gelu", ""): "an error function is several instructions",
    ("where_mask", ""): "elements hidden by a causal mask are not loaded",
    ("sum_last", ""): "partial sums of threads are added, too",
    ("argmax_last", ""): "the counters do not count comparisons as FLOPs",
    ("var_mean", ""): "one pass, with one division per element",
    ("layer_norm", ""): "one pass, with one division per element",
    ("softmax", ""): "an exponential is several instructions",
    ("layer_norm_bwd", ""): "two kernels, each of which reads both inputs",
    ("log_softmax", ""): _PASSES,
    ("cross_entropy", "_log_softmax"): _PASSES,
    ("cross_entropy", "_log_softmax_backward_data"): _PASSES,
    ("cross_entropy", "nll_loss_forward"): "an element loads its sector of 32 bytes, and the next one",
    ("cross_entropy", "nll_loss_backward"): "a few kB: parameters and code of the kernel",
    ("embedding_bwd", "embedding_dense_backward"): "partial sums are written, and read again",
    ("scatter_add", ""): "additions in the L2 are not counted",
    ("adamw_fused", "_foreach_add_"): "a few kB: parameters and code of the kernel",
    ("adamw_fused", "_fused_adamw_"): _ROOT,
    ("adamw_foreach", "_foreach_sqrt"): _ROOT,
    ("adamw_foreach", "_foreach_div_"): _ROOT,
    ("adamw_foreach", "_foreach_addcdiv_"): _ROOT,
    ("mm_fp32", ""): "each thread sums a part of a row; then these sums are added",
    ("mm_bf16", ""): _TILE,
    ("addmm_bf16", ""): _TILE,
    ("int4_weight", ""): "weights are converted to bf16",
    ("flash_prefill", ""): "whole tiles on the diagonal; exponentials",
    ("efficient_prefill", ""): "whole tiles on the diagonal; exponentials",
    ("cudnn_prefill", ""): "whole tiles on the diagonal; exponentials",
    ("efficient_fp32_prefill", ""): "an fp32 GEMM is three TF32 GEMMs",
    ("flash_decode", ""): "a tile has 128 rows for one query",
    ("cudnn_decode", ""): "a tile has 16 rows for one query",
}


def cause(label: str, op: str) -> str:
    return CAUSES.get((label, op)) or CAUSES.get((label, ""), "")
