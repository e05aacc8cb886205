"""A user's model and its inputs, as a step that can be measured or modelled."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import InputError
from tracekit.capture.emitted_ranges import Emitter, phase
from tracekit.run import require

if TYPE_CHECKING:
    from torch import nn


Loss = Callable[[Any], Any]
"""Maps the output of the model to the number to minimize."""


@dataclass(frozen=True)
class OwnModel:
    """A user's model. `inputs` are the arguments of a call: a tensor, a sequence of arguments, or a mapping of named
    ones."""

    model: "nn.Module"
    inputs: Any
    train: bool = False
    loss: Loss | None = None
    """The loss function; None for the loss that the model returns, else the mean of its first tensor."""

    @property
    def uncompiled(self) -> "nn.Module":
        """The model without the wrapper of torch.compile."""
        inner: nn.Module = getattr(self.model, "_orig_mod", self.model)
        return inner

    def check(self) -> None:
        """Raise InputError if the model is to be trained, but cannot be."""
        if self.train and not any(each.requires_grad for each in self.model.parameters()):
            why = "None of its parameters requires a gradient."
            raise InputError(f"{self.name} cannot be trained.", why, "Leave train=True out.")
        if self.train and any(getattr(each, "sparse", False) is True for each in self.model.modules()):
            why = "An embedding with sparse=True has sparse gradients, which AdamW does not support."
            raise InputError(f"{self.name} cannot be trained.", why, "Capture your own loop: tracekit.capture.")

    @property
    def name(self) -> str:
        return type(self.uncompiled).__name__

    def moved_to(self, device: str) -> "OwnModel":
        """Return a copy of the model and the inputs on a device."""
        model = copy.deepcopy(self.uncompiled).to(device)
        return OwnModel(model, mapped(lambda tensor: tensor.to(device), self.inputs), self.train, self.loss)

    def step(self, optimizer: Any = None) -> Callable[[Emitter], Any]:
        """Return one forward pass or, with an optimizer, one training step."""
        args, named = arguments(self.inputs)
        self.model.train(self.train)

        def forward(emitter: Emitter) -> Any:
            with require("torch").inference_mode(), phase("forward", emitter):
                return first_tensor(self.model(*args, **named))

        def update(emitter: Emitter) -> Any:
            with phase("forward", emitter):
                loss = (self.loss or loss_of)(self.model(*args, **named))
            with phase("backward", emitter):
                loss.backward()
            with phase("optimizer", emitter):
                optimizer.step()
                optimizer.zero_grad()
            return loss.detach()

        return update if self.train else forward

    def described(self) -> dict[str, Any]:
        """Return the fields of CaptureInfo that describe the run."""
        torch, tensors = require("torch"), list[Any]()
        mapped(tensors.append, self.inputs)
        first = next((each for each in tensors if each.dim()), None)
        tokens = first is not None and first.dim() == 2 and not first.dtype.is_floating_point
        weights = [each.dtype for each in self.model.parameters() if each.dtype.is_floating_point]
        exact = torch.get_float32_matmul_precision() == "highest"
        names = {torch.float32: "fp32" if exact else "tf32", torch.float16: "fp16", torch.bfloat16: "bf16"}
        return {
            "model": self.name,
            "workload": "train" if self.train else "forward",
            "batch_size": first.shape[0] if first is not None else 0,
            "seq_len": first.shape[1] if tokens and first is not None else 0,
            "dtype": names.get(max(weights, key=weights.count, default=None), ""),
        }


def weights_of(model: "nn.Module") -> dict[str, Any]:
    """Return the fields of CaptureInfo with the size of a model."""
    weights = list(model.parameters())
    return {
        "parameters": sum(each.numel() for each in weights),
        "weight_bytes": sum(each.nbytes for each in weights),
        "buffer_bytes": sum(each.nbytes for each in model.buffers()),
    }


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named arguments."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, (list, tuple)) else ((inputs,), {})


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply the function to all tensors of `value`, including those in lists and mappings."""
    if isinstance(value, require("torch").Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {name: mapped(function, each) for name, each in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(mapped(function, each) for each in value)
    return value


def loss_of(output: Any) -> Any:
    """Return the loss in an output, else the mean of its first tensor. Raises InputError if it has none."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is not None:
        return loss
    tensor = first_tensor(output)
    if tensor is None or not tensor.dtype.is_floating_point:
        why = "It has no loss, and no floating-point tensor to average."
        raise InputError("The model cannot be trained by its output.", why, "Give loss=, a function of its output.")
    return tensor.float().mean()


def first_tensor(output: Any) -> Any:
    """Return the first tensor of a model's output; None without tensors."""
    tensors: list[Any] = []
    mapped(tensors.append, output)
    return tensors[0] if tensors else None
