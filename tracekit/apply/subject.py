"""The subject of a measurement: a model, and how its step is run. Applying an optimization returns a new subject."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from tracekit.capture import Autocast, Backend, backend_of, numerics, torch_dtype
from tracekit.run import Dtype, Settings, require

if TYPE_CHECKING:
    from torch import nn


SEED = 0
"""Random seed of inputs, so that they are the same for every subject with the same settings."""

CompileMode = Literal["", "default", "max-autotune"]


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A model, and how its step is run. Two subjects may share weights, but no other mutable state."""

    model: "nn.Module"
    """The model, not compiled; it is compiled when the step is prepared."""
    settings: Settings
    inputs: Mapping[str, Any] | None = None
    """Keyword arguments for the forward of the user's own model; None for the settings' workload on seeded inputs."""
    compile_mode: CompileMode = ""
    graphs: bool = False
    """Whether the step is captured in a CUDA graph once and replayed."""
    static_cache: bool = False
    fused_optimizer: bool = False
    autocast: Autocast = ""
    """The 16-bit type of autocast around the forward pass of training."""
    named_backend: Backend = ""
    """The only backend that fused attention may use; "" for the one that the settings imply."""
    checked: int = 0
    """Number of drafted tokens that a decode step checks in addition to the next one."""
    tokens_a_step: float = 1.0
    """Number of tokens that a decode step yields on average."""
    caveats: tuple[str, ...] = ()
    """Parts of an optimization that were left out when it was applied."""

    @property
    def training(self) -> bool:
        return self.settings.workload == "train"

    @property
    def decodes(self) -> bool:
        return self.inputs is None and self.settings.workload in ("decode", "generate")

    @property
    def half_type(self) -> Literal["fp16", "bf16"]:
        """The 16-bit dtype that the device computes in natively; bf16 on a CPU."""
        cuda = require("torch.cuda")
        return "bf16" if not self.on_cuda or cuda.is_bf16_supported(including_emulation=False) else "fp16"

    @property
    def on_cuda(self) -> bool:
        return self.settings.device == "cuda"

    def with_twin(self) -> "Subject":
        """Return the subject with copies of its modules, which may be changed; weights are shared, in training
        copied."""
        return replace(self, model=twin(self.model, share=not self.training))

    def with_own_weights(self) -> "Subject":
        """Return the subject with its own copies of the weights if it trains them; otherwise itself."""
        return self.with_twin() if self.training else self

    def with_dtype(self, dtype: Dtype) -> "Subject":
        """Return the subject with weights and activations in `dtype`; itself if it has that dtype."""
        if self.settings.dtype == dtype:
            return self
        target = torch_dtype(dtype)
        inputs = self.inputs and {
            name: value.to(target) if getattr(value, "is_floating_point", bool)() else value
            for name, value in self.inputs.items()
        }
        return replace(
            self, model=converted(self.model, target), settings=self.settings.changed(dtype=dtype), inputs=inputs
        )

    def in_half(self) -> "Subject":
        """Return the subject in a 16-bit dtype; itself if it has one."""
        return self if self.settings.dtype in ("fp16", "bf16") else self.with_dtype(self.half_type)

    @property
    def backend(self) -> Backend:
        """The backend that its fused attention uses; "" for the one that torch prefers."""
        return self.named_backend or backend_of(self.settings.attention)

    @contextmanager
    def numerics(self) -> Iterator[None]:
        """Set the precision of arithmetic that its step runs with."""
        with numerics(self.settings.dtype, self.backend):
            yield


def twin(model: "nn.Module", *, share: bool) -> "nn.Module":
    """Return a copy of the model's modules, whose parameters and buffers are shared if `share`, else copied."""
    if not share:
        return copy.deepcopy(model)
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def converted(model: "nn.Module", dtype: Any) -> "nn.Module":
    """Return a copy of the model with floating-point weights in `dtype`, as if it had been loaded in that dtype.

    Buffers of transformers' models that are not stored, such as rotary frequencies, stay in fp32, because transformers
    computes them in fp32 for weights of any dtype.
    """
    torch = require("torch")
    kept = _not_stored(model) if _is_of_transformers(model) else set()
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        data = parameter.detach().to(dtype if parameter.is_floating_point() else parameter.dtype, copy=True)
        memo[id(parameter)] = torch.nn.Parameter(data, parameter.requires_grad)
    for name, buffer in model.named_buffers():
        wanted = buffer.is_floating_point() and name not in kept
        memo[id(buffer)] = buffer.to(dtype) if wanted else buffer.clone()
    result = copy.deepcopy(model, memo)
    if _is_of_transformers(result):
        result.config.dtype = dtype
    return result


def _is_of_transformers(model: "nn.Module") -> bool:
    return type(model).__module__.startswith("transformers.")


def _not_stored(model: "nn.Module") -> set[str]:
    return {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }
