"""Restrict fused attention to the kernels of one backend, and explain why they cannot run."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tracekit.analyzers.errors import InputError
from tracekit.capture.packages import require
from tracekit.capture.settings import Attention

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


def backend_of(attention: Attention) -> Backend:
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
