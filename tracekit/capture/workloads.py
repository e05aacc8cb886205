"""Workloads: the work of one step. A step takes the emitter of its phase ranges and returns its result.

The result is the logits (of generate: those of the prefill; of an encoder without a head: the last hidden state), in
training the loss. The same steps run on real and on fake tensors: no value is read back, and tensors are made on the
device.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import InputError
from tracekit.capture.emitted_ranges import Emitter, phase
from tracekit.capture.inputs import continuation, fill_cache, label_inputs, last_logits_only, prompt_inputs, unshared
from tracekit.capture.model_kinds import WITHOUT_TOKENS, Kind, kind_of, longest_sequence
from tracekit.capture.precision import Autocast, torch_dtype
from tracekit.run import Settings, WorkloadName, require

if TYPE_CHECKING:
    from torch import nn


Step = Callable[[Emitter], Any]

DEFAULT_SEQ_LEN = 512
_STATE_SEQ_LEN = 32
"""Default length for models with a state, because without their own kernels these launch for each token in each
layer."""
_WITHOUT_CACHE: dict[Kind, str] = {"a recurrent decoder": "it keeps a state in place of a KV cache"}


@dataclass(frozen=True)
class Workload:
    """A workload. `setup(model, settings)` prepares inputs on the settings' device and returns the step to repeat."""

    name: WorkloadName
    phases: tuple[str, ...]
    kinds: tuple[Kind, ...]
    setup: Callable[["nn.Module", Settings], Step]

    @property
    def training(self) -> bool:
        return self.name == "train"


def prepare(model: "nn.Module", settings: Settings) -> Step:
    """Return the step of the settings' workload on this model. `settings` has passed `complete`."""
    return WORKLOADS[settings.workload].setup(model, settings)


def complete(settings: Settings, config: Any) -> Settings:
    """Return the settings with the sequence length filled in (0 for a model without tokens).

    Raises InputError if the model cannot run the workload, or not at this length.
    """
    kind, workload = kind_of(config), WORKLOADS[settings.workload]
    if kind not in workload.kinds:
        able = ", ".join(name for name, other in WORKLOADS.items() if kind in other.kinds)
        raise InputError(
            f"{settings.shown_name} has no {workload.name}.",
            f"It is {kind}: {_WITHOUT_CACHE.get(kind, 'it generates no tokens')}.",
            f"It can run: {able}.",
        )
    usual = _STATE_SEQ_LEN if kind == "a recurrent decoder" else DEFAULT_SEQ_LEN
    return settings.with_seq_len(0 if kind in WITHOUT_TOKENS else _seq_len(settings, longest_sequence(config), usual))


def _seq_len(settings: Settings, positions: int, usual: int) -> int:
    further = {"decode": 1, "generate": settings.new_tokens - 1}.get(settings.workload, 0)
    longest = positions - further
    if settings.seq_len > longest or longest < 1:
        raise InputError(
            f"{settings.shown_name} cannot hold {max(settings.seq_len, 1) + further} tokens.",
            f"It has {positions} positions" + (f", and {settings.workload} adds {further}." if further else "."),
            f"Give --seq-len {longest} or less." if longest > 0 else "Ask for fewer --new-tokens.",
        )
    return settings.seq_len or min(usual, longest)


def _prefill(model: "nn.Module", settings: Settings) -> Step:
    torch = require("torch")
    inputs = prompt_inputs(model, settings)

    def step(emitter: Emitter) -> Any:
        with torch.inference_mode(), phase("prefill", emitter):
            return result_of(model(**inputs))

    return step


def _decode(model: "nn.Module", settings: Settings) -> Step:
    return checking_step(model, settings, 0)


def checking_step(model: "nn.Module", settings: Settings, drafted: int) -> Step:
    """Return one decode step over the next token and `drafted` more, as speculative decoding checks them."""
    torch = require("torch")
    with torch.inference_mode():
        filled = fill_cache(model, settings)
        token = torch.zeros(settings.batch_size, 1 + drafted, dtype=torch.long, device=settings.torch_device)

    def step(emitter: Emitter) -> Any:
        with torch.inference_mode(), phase("decode", emitter):
            return model(**continuation(model, filled, token, unshared(filled.past_key_values))).logits

    return step


def _generate(model: "nn.Module", settings: Settings) -> Step:
    torch = require("torch")
    inputs = {**prompt_inputs(model, settings), **last_logits_only(model)}

    def step(emitter: Emitter) -> Any:
        with torch.inference_mode():
            with phase("prefill", emitter):
                output = prefilled = model(**inputs)
                token = output.logits[:, -1:].argmax(-1)
            for _ in range(settings.new_tokens - 1):
                with phase("decode", emitter):
                    output = model(**continuation(model, prefilled, token, output.past_key_values))
                    token = output.logits[:, -1:].argmax(-1)
            return prefilled.logits

    return step


def _train(model: "nn.Module", settings: Settings) -> Step:
    return training_step(model, settings, adamw(model, settings))


def adamw(model: "nn.Module", settings: Settings) -> Any:
    # PyTorch refuses lists that hold split and whole parameters: those of tensor-parallel ranks are updated one by one.
    together = settings.device != "cpu" and not settings.tensor_parallel
    return require("torch").optim.AdamW(model.parameters(), foreach=together)


def training_step(
    model: "nn.Module",
    settings: Settings,
    optimizer: Any,
    *,
    called: "nn.Module | None" = None,
    autocast: Autocast = "",
) -> Step:
    """Return a step of forward pass with loss, backward pass and optimizer. `called` is a module that wraps the
    model. Gradients are scaled if `autocast` is fp16."""
    inputs, device, amp = label_inputs(model, settings), settings.torch_device, require("torch.amp")
    called = called or model
    scaler = amp.GradScaler(device, enabled=autocast == "fp16")

    def step(emitter: Emitter) -> Any:
        with phase("forward", emitter), amp.autocast(device, torch_dtype(autocast)) if autocast else nullcontext():
            loss = called(**inputs).loss
        with phase("backward", emitter):
            scaler.scale(loss).backward()
        with phase("optimizer", emitter):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return loss.detach()

    return step


def result_of(output: Any) -> Any:
    """Return the logits of a model's output, or else its first tensor."""
    return output.logits if "logits" in output else output[0]


_TEXT: tuple[Kind, ...] = ("a decoder", "an encoder-decoder", "a model of speech")
_ALL: tuple[Kind, ...] = (
    *_TEXT,
    "a recurrent decoder",
    "an encoder",
    "a model of images and text",
    *WITHOUT_TOKENS,
)

WORKLOADS: dict[WorkloadName, Workload] = {
    workload.name: workload
    for workload in (
        Workload("prefill", ("prefill",), _ALL, _prefill),
        Workload("decode", ("decode",), _TEXT, _decode),
        Workload("generate", ("prefill", "decode"), _TEXT, _generate),
        Workload("train", ("forward", "backward", "optimizer"), _ALL, _train),
    )
}
