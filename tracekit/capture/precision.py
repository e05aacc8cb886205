"""Sets the dtype, TF32 and the attention backend for a run, and restores them afterwards."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import GPU
from tracekit.run import require

if TYPE_CHECKING:
    from tracekit.run import Attention, Dtype

Autocast = Literal["", "fp16", "bf16"]
"""The type of autocast around a forward pass; "" for none."""

Backend = str
"""The name of a member of torch.nn.attention.SDPBackend; "" for the backend that torch prefers."""

FLASH: Backend = "FLASH_ATTENTION"
EFFICIENT: Backend = "EFFICIENT_ATTENTION"
CUDNN: Backend = "CUDNN_ATTENTION"
WORDS = {FLASH: "flash attention", EFFICIENT: "memory-efficient attention", CUDNN: "cuDNN attention"}
_HEADINGS = {FLASH: "flash", EFFICIENT: "memory efficient", CUDNN: "cudnn"}
"""The first word of torch's warnings about each backend."""
_NOT_USED = "not used because"
_NONE_LEFT = ("No available kernel", "No viable backend")


def backend_of(attention: "Attention") -> Backend:
    """Return the backend that an attention setting requires; "" for any."""
    return FLASH if attention == "flash" else ""


def beginning(backend: Backend) -> str:
    """Return the name of a backend with a capital, for the beginning of a sentence."""
    words = WORDS[backend]
    return words.capitalize() if words.islower() else words


@contextmanager
def only(backend: Backend) -> Iterator[None]:
    """Restrict scaled_dot_product_attention to the kernels of `backend`; it raises if they cannot run."""
    if not backend:
        yield
        return
    attention = require("torch.nn.attention")
    with attention.sdpa_kernel(getattr(attention.SDPBackend, backend)):
        yield


@contextmanager
def refusal_told(backend: Backend, run: str) -> Iterator[None]:
    """Raise InputError with torch's reason if `backend`, the only allowed one, cannot do the `run`."""
    if not backend:
        yield
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except RuntimeError as error:
            if not any(text in str(error) for text in _NONE_LEFT):
                raise
            why = _reason(backend, [str(each.message) for each in caught]) or str(error).strip().splitlines()[0]
            hint = "Try sdpa without a backend, which uses any kernel that can run."
            raise InputError(f"{beginning(backend)} cannot run {run} here.", why, hint) from error
    for each in caught:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def _reason(backend: Backend, messages: Sequence[str]) -> str:
    """Join torch's warnings about a backend: from the line that names it to the next line that names another
    backend."""
    reasons, about_backend = [], False
    for line in messages:
        if _NOT_USED in line:
            about_backend = line.lower().startswith(_HEADINGS[backend])
        elif about_backend:
            reasons.append(line.partition(" (Triggered internally")[0].strip())
    return " ".join(reasons)


TORCH_NAMES: "dict[Dtype, str]" = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Fields of configurations with the number of a model's experts."""


def torch_dtype(dtype: "Dtype") -> Any:
    """Return the torch.dtype of weights and activations; TF32 is fp32 in memory."""
    return getattr(require("torch"), TORCH_NAMES[dtype])


def published_dtype(config: Any, gpu: GPU | None) -> "Dtype":
    """Return the dtype in which the weights are published.

    On a GPU without bf16 it is fp16, except for a mixture of experts.
    """
    name = str(getattr(config, "dtype", None)).removeprefix("torch.")
    dtype: Dtype = next((dtype for dtype, known in TORCH_NAMES.items() if known == name), "fp32")
    if dtype != "bf16" or gpu is None or gpu.supports("bf16"):
        return dtype
    return dtype if has_experts(config) else "fp16"


def has_experts(config: Any) -> bool:
    """Return whether a model is a mixture of experts. torch has grouped GEMMs only for bf16."""
    return any(hasattr(config, name) for name in _EXPERTS)


@contextmanager
def numerics(dtype: "Dtype", backend: Backend) -> Iterator[None]:
    """Use TF32 for GEMMs only if `dtype` is tf32, and only this backend's kernels for fused attention."""
    torch = require("torch")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        with only(backend):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
