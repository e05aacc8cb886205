"""Functions of torch.nn.functional that take another path on CUDA than on the CPU, sent down the CUDA path."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from tracekit.capture.cuda_attention import AttentionChoice


class CudaFunctions(TorchFunctionMode):
    """Makes calls on CPU tensors decompose as on CUDA: the ops below are then those that a GPU gets."""

    def __init__(self, attention: AttentionChoice) -> None:
        super().__init__()
        self._choice = attention
        self._paths: dict[Any, Callable[..., Any]] = {
            functional.scaled_dot_product_attention: self._attention,
            functional.dropout: _dropout,
            functional.softmax: _softmax,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._paths.get(func, func)(*args, **(kwargs or {}))

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> torch.Tensor:
        """Dropout inside a fused kernel costs nothing that is modelled, and would send the CPU to the math path."""
        attend = functional.scaled_dot_product_attention
        if self._choice.backend(query, key, value, attn_mask is not None) == "math":
            with sdpa_kernel(SDPBackend.MATH):
                return attend(query, key, value, attn_mask, dropout_p, is_causal, **options)
        return attend(query, key, value, attn_mask, 0.0, is_causal, **options)


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    if training and not inplace and 0 < p < 1:
        return torch.native_dropout(input, p, True)[0]
    return functional.dropout(input, p, training, inplace)


def _softmax(
    input: torch.Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """CUDA has a softmax that reads fp16 and writes fp32."""
    if input.dtype == torch.float16 and dtype == torch.float32 and dim is not None:
        return torch._softmax(input, dim, True)
    return functional.softmax(input, dim, _stacklevel, dtype)
