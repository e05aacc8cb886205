"""Known reasons why a prediction differs from the measurement on the H200."""

from accuracy.speedup_rows import Row

_QUIET = 1.25
_NOISE = "Measured while the run without it took {:.1f} times as long as beside the others: the machine was not quiet."
_CAUSES = (
    (
        "fp8-dynamic+compile",
        "How much of quantizing the compiler fuses into the products decides: only its range is known.",
    ),
    (
        "int8-weight-only+compile",
        "torchao 0.18 (torch 2.11) widens the weights in a kernel of its own; how compiled code does varies.",
    ),
    (
        "int4-weight-only+compile",
        "The int4 kernel in a graph streams better than alone, by how much differs by shape.",
    ),
    (
        "half-precision+compile",
        "What the compiler fuses around casts, and which product kernels it takes: only ranges are known.",
    ),
    (
        "cuda-graphs",
        "What the device does on a static cache, once the host is gone, decides: its kernels are modelled.",
    ),
    (
        "nf4",
        "bitsandbytes 0.50 unpacks inside the product for up to four rows, not for one alone: mended since.",
    ),
    ("llm-int8", "Host time of bitsandbytes' layers: many launches each, whose Python is taken as one constant."),
    ("int8-dynamic", "Each layer quantizes through Python subclasses of tensors: many launches, each of them dear."),
    ("fp8-dynamic", "Each layer quantizes through Python subclasses of tensors: many launches, each of them dear."),
    ("int8-weight-only", "torchao 0.18 (torch 2.11) widens the weights in a kernel of its own, then multiplies."),
    ("int4-weight-only", "Host time of torchao's layers in Python, taken as one constant."),
    ("fused", "liger-kernel launches Triton through Python functions of autograd: dearer than an op of torch."),
    ("gradient-checkpointing", "The host's time of what is computed again, and of checkpoint's own Python."),
    ("max-autotune", "Templates chosen by measuring: only their range is known."),
    ("compile", "More or less is fused than assumed, or the host's share of compiled code differs."),
    (
        "half-precision",
        "How fast the host is in truth, where the device hid it, decides what is left; and the kernels.",
    ),
    ("tf32", "How fast the host is in truth, where the device hid it, decides what is left."),
    ("sdpa", "Written-out attention costs the host more than its launches."),
    ("batching", "Kernels of the larger batch are modelled; the host may be faster than the latency told."),
)


def cause(row: Row) -> str:
    if row.beside > _QUIET:
        return _NOISE.format(row.beside)
    return next((text for name, text in _CAUSES if name in row.optimization), "Within what the kernel model is off by.")
