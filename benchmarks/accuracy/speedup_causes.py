"""Why a prediction misses what was measured on the H200, as far as that is known."""

from accuracy.speedup_rows import Row

_CAUSES = (
    (
        "half-precision+cuda-graphs",
        "Not known: a replay of BERT takes 1.1 ms longer than its kernels are modelled, one of ViT mostly 0.4.",
    ),
    ("fused-kernels+cuda-graphs", "The device decides once the host is gone: kernels on a static cache take longer."),
    (
        "fp8-dynamic+compile",
        "How much of quantizing the compiler fuses into the products decides: only its range is known.",
    ),
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
    ("cuda-graphs", "The device decides once the host is gone: kernels on a static cache take longer than assumed."),
    ("max-autotune", "Templates chosen by measuring; only their range is known."),
    ("compile", "More is fused than assumed, or the host's share of compiled code differs."),
    ("half-precision", "Short kernels in 16 bits: predicted gains depend on which product kernel is chosen."),
    ("tf32", "Between host and device: what the host takes a launch decides how much of a shorter kernel is seen."),
)


def cause(row: Row) -> str:
    found = (text for name, text in _CAUSES if name in row.optimization)
    return next(found, "Within what the kernel model is off by.")
