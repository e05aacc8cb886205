"""Speculative decoding with a draft model: a generation with and without it, and the acceptance of its tokens."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.advise import CHECKED, acceptance_of
from tracekit.analyzers.core import InputError
from tracekit.analyzers.results import Difference, of_step, say
from tracekit.capture import (
    Emitter,
    Step,
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


def measured(before: Ready, draft: Draft, *, budget_s: float, wall_s: float) -> Drafted:
    """Measure a greedy generation with the draft model beside one without it.

    Raises TracekitError if the run generates no tokens, or the draft model has another vocabulary.
    """
    subject = before.subject
    settings, target = subject.settings, subject.model
    _check(settings, target, subject.inputs)
    small = _draft_model(settings, draft.model, target)
    inputs = _inputs(target, settings, draft.prompt)
    room = longest_sequence(config_of(target)) - int(inputs["input_ids"].shape[1])
    steps = [_generation(target, inputs, min(NEW_TOKENS, room), each) for each in (None, small)]
    alone, together = (Ready(subject, step) for step in steps)
    with _counted(target) as passes:
        output = together.output()
    result = beside(alone, together, resident_bytes=0, budget_s=budget_s, wall_s=wall_s)
    same = float((alone.output() == output).float().mean())
    new, tokens = len(output), len(output) / max(1, len(passes))
    difference = result.difference or Difference(0.0, 0.0, None, None)
    acceptance = acceptance_of(tokens, CHECKED)
    values = {"new": str(new), "passes": str(len(passes)), "tokens": f"{tokens:.2f}", "drafted": str(CHECKED)}
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


def _draft_model(settings: Settings, name: str, target: "nn.Module") -> "nn.Module":
    """Return the draft model on the run's device. Raises InputError if its vocabulary differs."""
    draft = replace(settings, model=name, name="", seq_len=0)
    model = models.build_for(complete(draft))
    sizes = [int(text_of(config_of(each)).vocab_size) for each in (target, model)]
    if sizes[0] != sizes[1]:
        why = f"The large model has {sizes[0]:,} tokens, {name} has {sizes[1]:,}."
        raise InputError("The draft model has another vocabulary.", why, "Choose a smaller model of the same family.")
    options: Any = model.generation_config
    options.num_assistant_tokens, options.num_assistant_tokens_schedule = CHECKED, "constant"
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


def _generation(target: Any, inputs: Mapping[str, Any], new: int, draft: "nn.Module | None") -> Step:
    """Return the step that generates `new` tokens greedily and returns them."""
    torch, begins = require("torch"), int(inputs["input_ids"].shape[1])
    options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "pad_token_id": 0}

    def step(_: Emitter) -> Any:
        with torch.inference_mode():
            return target.generate(**inputs, **options, assistant_model=draft)[0, begins:]

    return step


@contextmanager
def _counted(model: "nn.Module") -> Iterator[list[None]]:
    """Count the forward passes of a model: each of them adds an element to the list."""
    passes: list[None] = []
    hook = model.register_forward_pre_hook(lambda *_: passes.append(None))
    try:
        yield passes
    finally:
        hook.remove()
