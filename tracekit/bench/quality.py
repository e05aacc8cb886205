"""Computes the perplexity of a model on a text."""

import math
from importlib import resources
from pathlib import Path
from typing import Any

from tracekit.analyzers.errors import InputError, reading
from tracekit.capture import models
from tracekit.capture.model_kinds import config_of, kind_of, longest_sequence
from tracekit.capture.packages import require
from tracekit.subjects.subject import Subject

_WINDOW = 512
_SAMPLE = "sample.txt"


def sample() -> str:
    """Return the opening of Alice's Adventures in Wonderland (Lewis Carroll, 1865), which is in the public domain."""
    return (resources.files("tracekit.bench") / _SAMPLE).read_text(encoding="utf-8")


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


def perplexity(subject: Subject, text: str) -> float | None:
    """Return the exponential of the mean negative log likelihood per token, in windows of 512 tokens.

    Returns None if the model does not predict the next token. With random weights the tokens are the text's bytes,
    because such a model has no training text whose tokenizer would fit.
    """
    config = config_of(subject.model)
    if kind_of(config) != "a decoder" or subject.training:
        return None
    torch = require("torch")
    ids = torch.tensor(_tokens(subject, text), device=subject.settings.torch_device)
    size = min(_WINDOW, longest_sequence(config))
    total, count = 0.0, 0
    with torch.inference_mode(), subject.numerics():
        for window in ids.split(size):
            if len(window) > 1:
                total += _loss(subject.model, window)
                count += len(window) - 1
    return math.exp(min(total / count, 700.0)) if count else None


def _loss(model: Any, window: Any) -> float:
    logits = model(input_ids=window[None], use_cache=False).logits[0, :-1]
    return float(require("torch").nn.functional.cross_entropy(logits.float(), window[1:], reduction="sum"))


def _tokens(subject: Subject, text: str) -> list[int]:
    settings = subject.settings
    if settings.weights == "random":
        return [byte % config_of(subject.model).vocab_size for byte in text.encode()]
    tokenizer = require("transformers").AutoTokenizer.from_pretrained(
        models.find(settings.model).location, trust_remote_code=False
    )
    return list(tokenizer(text).input_ids)
