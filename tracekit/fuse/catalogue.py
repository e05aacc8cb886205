"""Defines the properties of each template that its proof and its timing need."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracekit.analyzers.cost import GPU
from tracekit.analyzers.fuse import GENERATED, Planned
from tracekit.run import Dtype

Sizes = Mapping[str, Any]


@dataclass(frozen=True)
class Template:
    """A template of a kernel."""

    pattern: str
    odd: tuple[Sizes, ...]
    """Arguments of the template's `example` for small inputs, whose sizes no tile divides."""
    gradients: tuple[int, ...] = ()
    """Positions of the inputs with gradients; (): the kernel has no backward pass."""
    activations: tuple[int, ...] = (0,)
    """Positions of the inputs that may have any values."""
    small: Sizes | None = None
    """Sizes for `gradcheck`, which calls the kernel once per element."""
    reduced: str = "columns"
    """The size over which the kernel sums."""
    extremes: bool = True
    """Whether results are comparable for infinite inputs. An index or a loss is not."""


TEMPLATES: dict[str, Template] = {
    "add_norm": Template(
        "residual + norm",
        ({"rows": 1, "columns": 7}, {"rows": 3, "columns": 769}, {"rows": 9, "columns": 64}),
        gradients=(0, 1, 2),
        activations=(0, 1),
        small={"rows": 2, "columns": 5},
    ),
    "norm_quantize": Template(
        "norm + quantize", ({"rows": 1, "columns": 7}, {"rows": 5, "columns": 769}), extremes=False
    ),
    "gated_activation": Template(
        "gated activation",
        ({"rows": 1, "columns": 5}, {"rows": 3, "columns": 1027}),
        gradients=(0, 1),
        activations=(0, 1),
        small={"rows": 2, "columns": 3},
    ),
    "rotary": Template(
        "rotary embedding",
        ({"rows": 1, "heads": (3, 1), "size": 6}, {"rows": 5, "heads": (4, 2), "size": 64, "batch": 2}),
        gradients=(0, 1),
        activations=(0, 1),
        small={"rows": 2, "heads": (1, 1), "size": 4},
        reduced="size",
    ),
    "masked_softmax": Template(
        "softmax with mask",
        ({"rows": 1, "heads": 1, "keys": 3}, {"rows": 5, "heads": 3, "keys": 130, "batch": 2}),
        gradients=(0,),
        small={"rows": 2, "heads": 1, "keys": 3},
        reduced="keys",
    ),
    "cross_entropy": Template(
        "cross entropy",
        ({"rows": 2, "columns": 16, "vocabulary": 101}, {"rows": 5, "columns": 24, "vocabulary": 5003}),
        gradients=(0, 1),
        small={"rows": 2, "columns": 3, "vocabulary": 4},
        reduced="vocabulary",
        extremes=False,
    ),
    "weight_only_product": Template(
        "int4/int8 dequantize + GEMM",
        (
            {"rows": 1, "columns": 13, "inputs": 256},
            {"rows": 3, "columns": 7, "inputs": 384, "group": 64},
            {"rows": 1, "columns": 5, "inputs": 128, "bits": 8, "group": 32},
            {"rows": 11, "columns": 6, "inputs": 128, "group": 32},
            {"rows": 1, "columns": 5, "inputs": 192, "group": 96},
            {"rows": 1, "columns": 5, "inputs": 192, "bits": 8, "group": 192},
            {"rows": 11, "columns": 5, "inputs": 192, "group": 192},
        ),
        reduced="inputs",
        extremes=False,
    ),
    "packed_projections": Template(
        "packed projections",
        ({"rows": 3, "columns": 17, "sizes": (5, 2, 3)},),
        extremes=False,
    ),
    "padded_projection": Template("padded projection", ({"rows": 3, "columns": 17, "outputs": 9},), extremes=False),
    "gelu_product": Template("GELU epilogue", ({"rows": 3, "columns": 17, "outputs": 9},), extremes=False),
    "draft_check": Template(
        "check of drafted tokens", ({"rows": 1, "vocabulary": 5}, {"rows": 5, "vocabulary": 9001}), extremes=False
    ),
    "pointwise_chain": Template(
        "pointwise chain",
        ({"rows": 1, "columns": 5}, {"rows": 3, "columns": 1027}),
        gradients=(0,),
        small={"rows": 2, "columns": 3},
    ),
    "embedding_position": Template(
        "embedding + position", ({"rows": 1, "columns": 7}, {"rows": 5, "columns": 769}), activations=(), extremes=False
    ),
}


DTYPES: dict[str, Dtype] = {"float": "fp32", "c10::Half": "fp16", "c10::BFloat16": "bf16"}
"""Types of which kernels are written, as the profiler and the settings name them."""
_OLDEST = (7, 0)
"""Lowest compute capability at which Triton's kernels run."""
_SINCE = {"bf16": (8, 0)}
"""The same for types that need a later capability."""
_NEEDS = {
    "residual + norm": "the template is put into layers that are x + a(norm(x)), then x + mlp(norm(x)), and nothing "
    "else, with a layer norm or an RMS norm by its plain weight",
    "rotary embedding": "the template rotates queries and keys in one call",
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
