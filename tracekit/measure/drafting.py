"""Speculative decoding with a draft model: a generation with and without it, and the acceptance of its tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tracekit.advise import acceptance_of
from tracekit.analyzers.core import InputError
from tracekit.analyzers.results import Difference, of_step, say
from tracekit.capture import (
    Emitter,
    complete,
    config_of,
    kind_of,
    longest_sequence,
    models,
    prompt_inputs,
    text_of,
)
from tracekit.measure.side_by_side import Measured, Ready, beside
from tracekit.reports.words import sentence
from tracekit.run import Settings, require

if TYPE_CHECKING:
    from torch import nn


NEW_TOKENS = 64
"""Number of tokens that are generated."""


@dataclass(frozen=True)
class Draft:
    """The requested draft model and prompt."""

    model: str
    prompt: Path | None = None
    """A text file; None: random tokens."""


@dataclass(frozen=True)
class Drafted:
    """The measured effect of a draft model."""

    measured: Measured
    """Of the whole generation."""
    tokens: int
    """How many it generates."""
    acceptance: float
    """Probability that a drafted token is accepted if the drafted tokens before it were, from the tokens per pass."""
    caveats: tuple[str, ...]


def measured(before: Ready, draft: Draft, drafted: int, *, budget_s: float, wall_s: float) -> Drafted:
    """Measure a greedy generation with the draft model, `drafted` tokens at a time, beside one without it.

    Raises TracekitError if the run generates no tokens, or the draft model has another vocabulary.
    """
    subject = before.subject
    settings, target = subject.settings, subject.model
    _check(settings, target, subject.inputs)
    small = _draft_model(settings, draft.model, target, drafted)
    inputs = _inputs(target, settings, draft.prompt)
    room = longest_sequence(config_of(target)) - int(inputs["input_ids"].shape[1])
    alone, together = (_Generation(target, inputs, min(NEW_TOKENS, room), each) for each in (None, small))
    sides = (Ready(subject, each) for each in (alone, together))
    result = beside(*sides, resident_bytes=0, budget_s=budget_s, wall_s=wall_s)
    same = float((alone.written == together.written).float().mean())
    new, passes = len(together.written), max(1, together.passes)
    tokens = new / passes
    difference = result.difference or Difference(0.0, 0.0, None, None)
    acceptance = acceptance_of(tokens, drafted)
    values = {"new": str(new), "passes": str(passes), "tokens": f"{tokens:.2f}", "drafted": str(drafted)}
    values["acceptance"] = f"{acceptance:.2f}"
    caveat = sentence(say("draft-measured", *(of_step(role, "name", value) for role, value in values.items())))
    caveats = (caveat, *(() if draft.prompt else (sentence(say("draft-prompt-is-random")),)))
    return Drafted(replace(result, difference=replace(difference, agreement=same)), new, acceptance, caveats)


def _check(settings: Settings, target: "nn.Module", inputs: Any) -> None:
    generates = settings.workload in ("decode", "generate") and inputs is None
    if not generates or kind_of(config_of(target)) != "a decoder":
        raise InputError("A draft model needs a decoder that generates.", "", "Profile with --workload decode.")
    if settings.batch_size != 1:
        why = "transformers drafts for one sequence at a time."
        raise InputError("A draft model is measured at batch 1.", why, "Profile with --batch-size 1.")


def _draft_model(settings: Settings, name: str, target: "nn.Module", drafted: int) -> "nn.Module":
    """Return the draft model on the run's device. Raises InputError if its vocabulary differs."""
    draft = settings.changed(model=name, name="", seq_len=0)
    model = models.build_for(complete(draft))
    sizes = [int(text_of(config_of(each)).vocab_size) for each in (target, model)]
    if sizes[0] != sizes[1]:
        why = f"The large model has {sizes[0]:,} tokens, {name} has {sizes[1]:,}."
        raise InputError("The draft model has another vocabulary.", why, "Choose a smaller model of the same family.")
    options: Any = model.generation_config
    options.num_assistant_tokens, options.num_assistant_tokens_schedule = drafted, "constant"
    options.assistant_confidence_threshold = 0.0
    return model


def _inputs(target: "nn.Module", settings: Settings, prompt: Path | None) -> dict[str, Any]:
    """Return the tokens of the prompt, as many as the run has."""
    torch = require("torch")
    if prompt is None:
        tokens = prompt_inputs(target, settings)["input_ids"]
    else:
        tokenizer = require("transformers").AutoTokenizer.from_pretrained(settings.model)
        encoded = tokenizer(prompt.read_text(encoding="utf-8"), return_tensors="pt")["input_ids"]
        tokens = encoded[:, : settings.seq_len].to(settings.torch_device)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


@dataclass
class _Generation:
    """The step that generates tokens greedily. It keeps the last ones, and in how many of the model's passes."""

    model: Any
    inputs: Mapping[str, Any]
    new: int
    """How many tokens are generated."""
    draft: "nn.Module | None"
    written: Any = None
    passes: int = 0

    def __call__(self, _: Emitter) -> Any:
        options = {"max_new_tokens": self.new, "min_new_tokens": self.new, "do_sample": False, "pad_token_id": 0}
        self.passes, begins = 0, int(self.inputs["input_ids"].shape[1])
        hook = self.model.register_forward_pre_hook(self._count)
        try:
            with require("torch").inference_mode():
                generated = self.model.generate(**self.inputs, **options, assistant_model=self.draft)
        finally:
            hook.remove()
        self.written = generated[0, begins:]
        return self.written

    def _count(self, *_: Any) -> None:
        self.passes += 1
