"""Measures the output of a model on a text: its perplexity, and the most likely tokens."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from tracekit.analyzers.core import InputError, reading
from tracekit.apply import Subject
from tracekit.capture import config_of, kind_of, longest_sequence, models
from tracekit.run import require

_WINDOW = 512
_SAMPLE = "sample.txt"


def sample() -> str:
    """Return the opening of Alice's Adventures in Wonderland (Lewis Carroll, 1865), which is in the public domain."""
    return (resources.files("tracekit.measure") / _SAMPLE).read_text(encoding="utf-8")


def text_of(path: Path | None) -> str:
    """Return the text in a file, or the sample for None. Raises InputError if it cannot be read, or is empty."""
    if path is None:
        return sample()
    what, hint = f"{path} cannot be read as text.", "Name a text file, or leave out --text."
    try:
        with reading(what, hint):
            text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(what, "It is not in UTF-8.", hint) from error
    if not text.strip():
        raise InputError(what, "It is empty.", hint)
    return text


@dataclass(frozen=True)
class Quality:
    """The output of a model on a text."""

    perplexity: float
    """Exponential of the mean negative log likelihood per token."""
    choices: Any
    """Tensor of the most likely token at each position."""

    def agreement(self, other: "Quality") -> float:
        """Return the fraction of positions at which both predict the same most likely token."""
        return float((self.choices == other.choices).float().mean())


def quality(subject: Subject, text: str) -> Quality | None:
    """Return the quality of a model's output on a text, in windows of 512 tokens; None if it does not predict the next
    token.

    With random weights the tokens are the text's bytes, because such a model has no training text whose tokenizer would
    fit.
    """
    config = config_of(subject.model)
    if kind_of(config) != "a decoder" or subject.training:
        return None
    torch = require("torch")
    with torch.inference_mode(), subject.numerics():
        made = [_read(subject.model, window) for window in token_windows(subject, text) if len(window) > 1]
    if not made:
        return None
    losses, choices = (torch.cat(each) for each in zip(*made, strict=True))
    return Quality(math.exp(min(losses.mean().item(), 700.0)), choices)


def token_windows(subject: Subject, text: str) -> Iterator[Any]:
    """Yield the tokens of a text, 512 at a time (the last ones may be fewer)."""
    ids = require("torch").tensor(_tokens(subject, text), device=subject.settings.torch_device)
    yield from ids.split(min(_WINDOW, longest_sequence(config_of(subject.model))))


def _read(model: Any, window: Any) -> tuple[Any, Any]:
    """Return the loss, and the most likely token at each position except the last."""
    logits = model(input_ids=window[None], use_cache=False).logits[0, :-1].float()
    losses = require("torch").nn.functional.cross_entropy(logits, window[1:], reduction="none")
    return losses.double(), logits.argmax(-1)


def _tokens(subject: Subject, text: str) -> list[int]:
    settings = subject.settings
    if settings.weights == "random":
        return [byte % config_of(subject.model).vocab_size for byte in text.encode()]
    tokenizer = require("transformers").AutoTokenizer.from_pretrained(
        models.find(settings.model).location, trust_remote_code=False
    )
    return list(tokenizer(text).input_ids)
