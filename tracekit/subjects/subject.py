"""The subject of a measurement: a model, and how its step is run. Applying an optimization returns a new subject."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tracekit.capture.attention_kernels import Backend, backend_of
from tracekit.capture.numerics import numerics, torch_dtype
from tracekit.capture.packages import require
from tracekit.capture.settings import Dtype, Settings
from tracekit.capture.workloads import Autocast
from tracekit.subjects.weight_copies import converted, twin

if TYPE_CHECKING:
    from torch import nn

CompileMode = Literal["", "default", "max-autotune"]


@dataclass(frozen=True, kw_only=True)
class Subject:
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
            self, model=converted(self.model, target), settings=replace(self.settings, dtype=dtype), inputs=inputs
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
