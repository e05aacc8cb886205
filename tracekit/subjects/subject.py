"""What is measured: a model, and how a step of it is run. Applying an optimization makes another one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tracekit.capture.attention_kernels import Backend, backend_of
from tracekit.capture.numerics import numerics, torch_dtype
from tracekit.capture.packages import require
from tracekit.capture.settings import Dtype, Settings
from tracekit.subjects.weight_copies import converted, twin

if TYPE_CHECKING:
    from torch import nn

CompileMode = Literal["", "default", "max-autotune"]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Two subjects may share weights, and nothing else that changes."""

    model: "nn.Module"
    """Not compiled: that is done when the step is prepared."""
    settings: Settings
    inputs: Mapping[str, Any] | None = None
    """What one forward of a model of one's own takes; None: the settings' workload, on seeded inputs."""
    compile_mode: CompileMode = ""
    graphs: bool = False
    """The step is captured once and replayed."""
    static_cache: bool = False
    fused_optimizer: bool = False
    named_backend: Backend = ""
    """The one that fused attention may take; "": as its settings have it."""
    checked: int = 0
    """Drafted tokens that a decode step checks beside the next one."""
    tokens_a_step: float = 1.0
    """Tokens that a decode step yields."""

    @property
    def training(self) -> bool:
        return self.settings.workload == "train"

    @property
    def decodes(self) -> bool:
        return self.inputs is None and self.settings.workload in ("decode", "generate")

    @property
    def half_type(self) -> Literal["fp16", "bf16"]:
        """The 16-bit type that its device computes in natively; the CPU has bf16."""
        cuda = require("torch.cuda")
        return "bf16" if not self.on_cuda or cuda.is_bf16_supported(including_emulation=False) else "fp16"

    @property
    def on_cuda(self) -> bool:
        return self.settings.device == "cuda"

    def with_twin(self) -> "Subject":
        """The same weights (in training, copies of them) in modules of its own, which may be changed."""
        return replace(self, model=twin(self.model, share=not self.training))

    def with_own_weights(self) -> "Subject":
        """For a change that leaves the model alone: what is trained may not be shared."""
        return self.with_twin() if self.training else self

    def with_dtype(self, dtype: Dtype) -> "Subject":
        """Weights and activations in `dtype`; itself when they are."""
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
        """In 16 bits, if it is not already."""
        return self if self.settings.dtype in ("fp16", "bf16") else self.with_dtype(self.half_type)

    @property
    def backend(self) -> Backend:
        """The one that its fused attention runs on; "": whichever torch prefers."""
        return self.named_backend or backend_of(self.settings.attention)

    @contextmanager
    def numerics(self) -> Iterator[None]:
        """The arithmetic that its step runs with."""
        with numerics(self.settings.dtype, self.backend):
            yield
