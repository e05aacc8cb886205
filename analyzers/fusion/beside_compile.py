"""Compares the time of written kernels with torch.compile's kernels for the same ops, as measured on an H100 and an
H200."""

_INFERENCE = {
    "add_norm": (0.87, 1.26),
    "norm": (1.0, 1.12),
    "norm_quantize": (0.52, 0.7),
    "rotary": (0.73, 1.0),
    "gated_activation": (0.81, 1.18),
    "gelu_product": (0.69, 0.81),
    "pointwise_chain": (0.78, 0.97),
    "masked_softmax": (0.87, 1.01),
    "packed_projections": (0.26, 1.01),
    "embedding_position": (0.68, 1.01),
    "weight_only_product": (0.19, 0.27),
    "draft_check": (0.12, 0.14),
}
_TRAINING = {
    "add_norm": (0.99, 1.1),
    "norm": (1.2, 1.38),
    "rotary": (0.34, 0.47),
    "gated_activation": (0.99, 1.04),
    "pointwise_chain": (0.8, 0.95),
    "cross_entropy": (0.58, 0.74),
    "dropout_residual": (1.14, 1.23),
}
"""Template -> lowest and highest time of the kernel over that of torch.compile's, over models and sizes
(benchmarks/data/h100_fused, h200_fused and own modules in fused_steps_h100; forward and backward in training)."""
_AS_WELL = 0.97
"""Ratio from which torch.compile counts as equally fast."""


def beside_compile(template: str, *, training: bool) -> str:
    """Return in words whether the template's kernel or torch.compile's is faster; "" if it was not measured."""
    if not template:
        return "torch.compile fuses it, where it can compile the model"
    low, high = (_TRAINING if training else _INFERENCE).get(template, (0.0, 0.0))
    if not high:
        return ""
    who = "torch.compile is as fast" if low >= _AS_WELL else "faster than torch.compile's" if high < _AS_WELL else ""
    part = f"{low:.2f} to {high:.2f} of torch.compile's time, measured on an H100 and an H200"
    return f"{who}: {part}" if who else part
