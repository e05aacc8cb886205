"""Models with quantized linear layers: by torchao's configurations, or as layers of bitsandbytes or tracekit.

They may be trained before they are measured: adapters beside weights in a format, or weights that it rounds.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tracekit.analyzers.core import InputError, TracekitError
from tracekit.analyzers.predict import HEADS
from tracekit.apply.subject import SEED, Subject
from tracekit.capture import prompt_inputs
from tracekit.quantization import Group, quantize
from tracekit.run import require

if TYPE_CHECKING:
    from torch import nn


def with_torchao(subject: Subject, configuration: str, **options: Any) -> Subject:
    """Return the subject with its nn.Linear layers, except the head, quantized by torchao.

    `configuration` is the name of a class in torchao.quantization and `options` are its arguments; a granularity is
    given by its name. All other layers use 16 bits. Raises TracekitError for training, or without an nn.Linear layer.
    """
    quantization = require("torchao.quantization")
    changed = _inference(subject).in_half().with_twin()
    wanted = {id(layer) for _, _, layer in inner_layers(changed.model, ("Linear",))}
    if not wanted:
        raise TracekitError("Nothing can be quantized.", "The model has no nn.Linear layer other than its head.")
    if isinstance(options.get("granularity"), str):
        options["granularity"] = getattr(quantization, options["granularity"])()
    config = getattr(quantization, configuration)(set_inductor_config=False, **options)
    quantization.quantize_(changed.model, config, filter_fn=lambda layer, _: id(layer) in wanted)
    return changed


def with_nf4(subject: Subject) -> Subject:
    """Return the subject with its linear layers, except the head, in bitsandbytes' NF4."""
    return with_own(subject, "nf4")


def with_llm_int8(subject: Subject) -> Subject:
    """Return the subject with its linear layers, except the head, in bitsandbytes' LLM.int8."""
    modules = require("bitsandbytes").nn

    def int8(layer: "nn.Module", inputs: int, outputs: int) -> Any:
        quantized = modules.Linear8bitLt(
            inputs, outputs, bias=layer.bias is not None, has_fp16_weights=False, threshold=6.0, device="meta"
        )
        quantized.weight = modules.Int8Params(_rows(layer).cpu(), requires_grad=False, has_fp16_weights=False)
        return quantized

    return _with_layers(_inference(subject).with_dtype("fp16"), int8)


def _inference(subject: Subject) -> Subject:
    if subject.training:
        raise TracekitError("Quantized weights cannot be trained.", "A training step would change them.")
    return subject


def inner_layers(model: "nn.Module", types: tuple[str, ...]) -> Iterator[tuple["nn.Module", str, "nn.Module"]]:
    """Yield (parent, name in the parent, layer) for the layers of these classes, except the head."""
    for parent in model.modules():
        for name, layer in parent.named_children():
            if type(layer).__name__ in types and name not in HEADS:
                yield parent, name, layer


def _with_layers(subject: Subject, make: Callable[["nn.Module", int, int], Any]) -> Subject:
    changed = subject.with_twin()
    for parent, name, layer in list(inner_layers(changed.model, ("Linear", "Conv1D"))):
        rows, columns = _rows(layer).shape
        new = make(layer, columns, rows)
        new.bias = layer.bias
        setattr(parent, name, new.to(layer.weight.device))
    return changed


def _rows(layer: "nn.Module") -> Any:
    """Return the weights, [outputs, inputs] as nn.Linear stores them; GPT-2's Conv1D stores the transpose."""
    weight: Any = layer.get_parameter("weight").detach()
    plain = weight if isinstance(layer, require("torch.nn").Linear) else weight.t()
    return plain.contiguous()


Method = Literal["awq", "smoothquant"]
METHODS: tuple[Method, ...] = ("awq", "smoothquant")
_CALIBRATED = 16
"""Windows that are enough to calibrate with."""


def with_calibrated(subject: Subject, method: Method, windows: Sequence[Any]) -> Subject:
    """Return the subject with its linear layers, except the head, in int4 (awq) or int8 (smoothquant), calibrated.

    `windows` are tensors of token ids, on which the inputs of layers are observed. Raises TracekitError for training,
    and InputError without windows.
    """
    if not windows:
        raise InputError("Nothing to calibrate with.", "The text is shorter than a window.", "Give --calibration FILE.")
    return with_own(subject, method, calibration_inputs(windows))


def calibration_inputs(windows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the inputs of a decoder for windows of token ids, as many as calibration needs."""
    return [{"input_ids": window[None], "use_cache": False} for window in windows[:_CALIBRATED]]


def with_own(subject: Subject, to: Any, calibration: Sequence[Any] = (), group_size: Group = 64) -> Subject:
    """Return the subject with its linear layers, except the head, in a format of `tracekit.quantize`.

    A format that is calibrated is calibrated on the inputs of the run's step, unless others are given.
    """
    changed = _inference(subject).in_half().with_twin()
    torch, inputs = require("torch"), changed.inputs or {}
    with torch.inference_mode(False), changed.numerics():
        if to in METHODS and not calibration:
            calibration = [inputs or prompt_inputs(changed.model, changed.settings)]
        quantize(changed.model, to, calibration=calibration, group_size=group_size)
    return changed


Windows = Callable[[Subject], Sequence[Any]]
"""Gives tensors of token ids, all of the same length."""
_RATES = {"lora": 6e-4, True: 1e-4}
"""Learning rates of adapters and of weights; they fall to zero."""


@dataclass(frozen=True)
class Training:
    """What is trained, and beside or in which format of weights; "none" leaves them as they are."""

    what: Literal["lora", True]
    format: Any

    def applied(self, subject: Subject, windows: Windows = lambda _: (), steps: int = 0) -> Subject:
        """Return the subject prepared for its own training, or trained for `steps` on windows of token ids.

        The target is what the format has lost: the probabilities that the unchanged model gives the next token (Liu et
        al., 2023, LLM-QAT). Trained weights are packed afterwards; adapters stay beside theirs. Raises TracekitError if
        the workload does not train and there are no steps, and InputError without windows.
        """
        changed = subject.in_half()
        if subject.training:
            calibration = [prompt_inputs(changed.model, changed.settings)] if self.format in METHODS else ()
            return self._made(changed.with_twin(), calibration)
        if not steps:
            why = "The workload does not train."
            raise TracekitError("It can only be trained.", why, "Add --train-steps 200, or --workload train.")
        return self._after(steps, changed, windows(changed))

    def _after(self, steps: int, subject: Subject, windows: Sequence[Any]) -> Subject:
        if not windows:
            raise InputError("Nothing to train with.", "The text is shorter than a window.", "Give --calibration FILE.")
        torch, calibration = require("torch"), calibration_inputs(windows)
        with torch.inference_mode(False), torch.enable_grad(), subject.numerics():
            torch.manual_seed(SEED)
            made = subject.with_twin()
            made.model.requires_grad_(False)  # what is not of the layers is shared with the unchanged model
            self._made(made, calibration)
            before = None if self.format == "none" else subject.model
            _train(made.model, before, windows, steps, _RATES[self.what])
            if self.what is True:
                quantize(made.model, self.format, calibration=calibration)
        return made

    def _made(self, changed: Subject, calibration: Sequence[Any]) -> Subject:
        quantize(changed.model, self.format, trainable=self.what, calibration=calibration)
        return changed


_BATCH = 8
"""Windows of the text in a step of training."""


def _train(model: "nn.Module", before: "nn.Module | None", windows: Sequence[Any], steps: int, rate: float) -> None:
    """Train what is trainable in fp32, beside arithmetic in the model's type, to give the next token the probabilities
    that the model `before` gives it; None: those of the text."""
    torch = require("torch")
    trained = [each for each in model.parameters() if each.requires_grad]
    kept = [each.dtype for each in trained]
    for each in trained:
        each.data = each.data.float()
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    generator = torch.Generator().manual_seed(SEED)
    half = next((each for each in kept if each != torch.float32), None)
    whole = [each for each in windows if len(each) == len(windows[0])]
    for drawn in torch.randint(len(whole), (steps, _BATCH), generator=generator).tolist():
        ids = torch.stack([whole[place] for place in drawn])
        with torch.autocast(ids.device.type, half) if half else nullcontext():
            loss = _loss(model, before, ids)
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    for each, dtype in zip(trained, kept, strict=True):
        each.data = each.data.to(dtype)
    model.requires_grad_(False)


def _loss(model: Any, before: Any, ids: Any) -> Any:
    torch = require("torch")
    chosen = model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
    if before is None:
        return torch.nn.functional.nll_loss(chosen[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    with torch.no_grad():
        wanted = before(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
    chosen, wanted = chosen.flatten(0, 1), wanted.flatten(0, 1)
    return torch.nn.functional.kl_div(chosen, wanted, log_target=True, reduction="batchmean")
