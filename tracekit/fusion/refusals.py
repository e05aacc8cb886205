"""Why no kernel is written for a group of a plan: its ops, its type, or the GPU."""

from tracekit.analyzers.fusion.kernel import GENERATED
from tracekit.analyzers.fusion.planned_kernels import Planned
from tracekit.analyzers.hardware import GPU
from tracekit.capture.settings import Dtype

DTYPES: dict[str, Dtype] = {"float": "fp32", "c10::Half": "fp16", "c10::BFloat16": "bf16"}
"""Types of which kernels are written, as the profiler and the settings name them."""
_OLDEST = (7, 0)
"""Lowest compute capability at which Triton's kernels run."""
_SINCE = {"bf16": (8, 0)}
"""The same for types that need a later capability."""
_NEEDS = {
    "residual + norm": "the template is put into layers that are x + a(norm(x)), then x + mlp(norm(x)), and nothing "
    "else, with a layer norm or an RMS norm by its plain weight",
    "norm": "the template does RMS norms of heads of queries and keys, by their plain weight",
    "rotary embedding": "the template rotates queries and keys in one call, or one tensor by the angles of pairs",
    "gated activation": "the template is put into MLPs that are down(activation(gate(x)) * up(x)), and nothing else",
    "cross entropy": "the template is for causal models of transformers, whose head has no bias and whose logits are "
    "not scaled",
    "pointwise chain": "the template is put into modules that compute the chain of one tensor, and nothing else",
    "embedding + position": "the template has no backward pass",
    "softmax": "the template does attention's softmax, of four dimensions",
}
_UNKNOWN = "no template fits this group"


def obstacle(planned: Planned, gpu: GPU) -> str:
    """Return why no kernel can be written for a row; "": one can."""
    if not planned.template:
        return f"{_unfit(planned)} ({planned.elsewhere})" if planned.elsewhere else _unfit(planned)
    dtype = DTYPES.get(planned.dtype)
    if dtype is None:
        return f"its type, {planned.dtype or 'unknown'}, is not supported: profile the model in bf16, fp16 or fp32"
    if gpu.vendor != "nvidia":
        return f"kernels are written and proved for NVIDIA's GPUs, which the {gpu.name} is not: write for another --gpu"
    if gpu.compute_capability < _OLDEST:
        has = ".".join(map(str, gpu.compute_capability))
        return f"Triton needs compute capability 7.0 (Volta), and the {gpu.name} has {has}: write for another --gpu"
    if gpu.compute_capability < _SINCE.get(dtype, _OLDEST):
        return f"the {gpu.name} does not compute in {dtype}: profile it with --dtype fp16"
    return ""


def _unfit(planned: Planned) -> str:
    """Return why no template does a group."""
    if planned.library and planned.pattern not in _NEEDS:
        return _UNKNOWN
    known = GENERATED["one"] | GENERATED["two"]
    others = sorted(set(planned.ops.split(", ")) - known)
    if planned.pattern in ("gated activation", "pointwise chain") and others:
        return f"{_UNKNOWN}: code is not generated for {', '.join(others)}"
    needs = _NEEDS.get(planned.pattern)
    return f"{_UNKNOWN}: {needs}" if needs else _UNKNOWN
