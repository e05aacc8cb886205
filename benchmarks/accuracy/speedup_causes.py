"""Why a prediction misses what was measured on the H200, as far as that is known."""

from accuracy.speedup_rows import Row

_CAUSES = (
    (
        "int8-weight-only",
        "torchao 0.18 (torch 2.11) widens the weights in a kernel of its own, then multiplies in bf16.",
    ),
    ("int8-dynamic", "Each layer quantizes through Python subclasses of tensors: many launches, each of them dear."),
    ("fp8-dynamic", "Each layer quantizes through Python subclasses of tensors: many launches, each of them dear."),
    ("fused-kernels", "liger-kernel launches Triton through Python functions of autograd: dearer than an op of torch."),
    ("static-cache", "Copies into the cache, and its mask, cost the host more launches a layer than assumed."),
    ("gradient-checkpointing", "The host's time of what is computed again, and of checkpoint's own Python."),
    ("int4-weight-only", "With graphs the int4 kernel streams better than assumed; without, the host decides."),
    ("batching", "The graph's kernels at eight rows are slower than assumed."),
    ("cuda-graphs", "Kernels decide once the host is gone: those of small 16-bit products are predicted too short."),
    ("max-autotune", "Templates chosen by measuring; only their range is known."),
    ("compile", "More is fused than assumed, or the host's share of compiled code differs."),
    ("half-precision", "Short kernels in 16 bits: predicted gains depend on which product kernel is chosen."),
    ("tf32", "Sustained rate of TF32 products at this size."),
)


def cause(row: Row) -> str:
    found = (text for name, text in _CAUSES if name in row.optimization)
    return next(found, "Within what the kernel model is off by.")
