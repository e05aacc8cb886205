"""Models trained before they are measured: adapters beside weights in a format, or weights that it rounds."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tracekit.analyzers.core import InputError, TracekitError
from tracekit.apply.prepared_step import SEED
from tracekit.apply.quantized import METHODS, calibration_inputs
from tracekit.apply.subject import Subject
from tracekit.capture import prompt_inputs
from tracekit.quantization import quantize
from tracekit.run import require

if TYPE_CHECKING:
    from torch import nn


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
    for drawn in torch.randint(len(windows), (steps,), generator=generator).tolist():
        ids = windows[drawn][None]
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
    chosen = model(input_ids=ids, use_cache=False).logits[0].float().log_softmax(-1)
    if before is None:
        return torch.nn.functional.nll_loss(chosen[:-1], ids[0, 1:])
    with torch.no_grad():
        wanted = before(input_ids=ids, use_cache=False).logits[0].float().log_softmax(-1)
    return torch.nn.functional.kl_div(chosen, wanted, log_target=True, reduction="batchmean")
