"""Known reasons why a prediction differs from the measurement on the H200."""

from accuracy.speedup_rows import Row

_QUIET = 1.25
_NOISE = "Measured while the unmodified run took {:.1f} times as long as beside the others: the machine was busy."
_CAUSES = (
    (
        "fp8-dynamic+compile",
        "Depends on how much of the quantization the compiler fuses into GEMMs: only its range is known.",
    ),
    (
        "int8-weight-only+compile",
        "torchao 0.18 (torch 2.11) widens the weights in a separate kernel; compiled code varies.",
    ),
    (
        "int4-weight-only+compile",
        "The int4 kernel streams faster in a graph than alone, by a factor that depends on the shape.",
    ),
    (
        "half-precision+compile",
        "Which ops the compiler fuses with casts, and which GEMM kernels it uses: only ranges are known.",
    ),
    (
        "cuda-graphs",
        "Depends on the kernels that use a static cache, which are modelled, not measured.",
    ),
    (
        "nf4",
        "bitsandbytes 0.50 unpacks inside the GEMM for up to four rows, not only for one: fixed since.",
    ),
    ("llm-int8", "Host time of bitsandbytes' layers: many launches each, whose Python time is one constant."),
    ("int8-dynamic", "Each layer quantizes through Python tensor subclasses: many expensive launches."),
    ("fp8-dynamic", "Each layer quantizes through Python tensor subclasses: many expensive launches."),
    ("int8-weight-only", "torchao 0.18 (torch 2.11) widens the weights in a separate kernel before the GEMM."),
    ("int4-weight-only", "Host time of torchao's Python layers, modelled as one constant."),
    ("fused", "liger-kernel launches Triton through Python autograd functions, which take longer than a torch op."),
    ("gradient-checkpointing", "Host time of the recomputation, and of the Python code of checkpoint."),
    ("max-autotune", "Autotuning chooses the templates: only their range is known."),
    ("compile", "The compiler fuses more or fewer ops than assumed, or the host time of compiled code differs."),
    (
        "half-precision",
        "Depends on the kernels, and on the host time, which the device hid before.",
    ),
    ("tf32", "Depends on the host time, which the device hid before."),
    ("sdpa", "Unfused attention takes the host longer than its launches."),
    ("batching", "Kernels of the larger batch are modelled; the host may be faster than the latency showed."),
)


def cause(row: Row) -> str:
    if row.beside > _QUIET:
        return _NOISE.format(row.beside)
    return next((text for name, text in _CAUSES if name in row.optimization), "Within the error of the kernel model.")
