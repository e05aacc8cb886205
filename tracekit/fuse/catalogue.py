"""Defines the properties of each template that its proof and its timing need."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tracekit.analyzers.core import facts
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


_FACTS = facts(__file__)
TEMPLATES = {name: msgspec.convert(row, Template) for name, row in _FACTS["templates"].items()}


DTYPES: dict[str, Dtype] = {"float": "fp32", "c10::Half": "fp16", "c10::BFloat16": "bf16"}
"""Types of which kernels are written, as the profiler and the settings name them."""
_OLDEST = (7, 0)
"""Lowest compute capability at which Triton's kernels run."""
_SINCE = {"bf16": (8, 0)}
"""The same for types that need a later capability."""
_NEEDS: dict[str, str] = _FACTS["needs"]
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
