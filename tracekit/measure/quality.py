"""Judges a changed model beside the unchanged one: on a text, on tokens, or by a function that the user names."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.analyzers.core import LARGEST, Floats, InputError, Interval, reading
from tracekit.analyzers.results import Quality
from tracekit.apply import SEED, Subject
from tracekit.capture import config_of, kind_of, longest_sequence, models, synchronize
from tracekit.run import first_line, require

_WINDOW = 512
_SAMPLE = "sample.txt"
_BLOCK = 32
"""Consecutive tokens that a bootstrap draws together, because their losses depend on each other."""
_DRAWS = 1000
_ENDS = (2.5, 97.5)
_HINT = "Name a text file, a file of token ids (.npy, .json), or a function as module:name."


@dataclass(frozen=True)
class Evaluation:
    """What a model is judged by: a text, token ids, or a function (module:name) that returns a score."""

    name: str
    text: str = ""
    ids: tuple[int, ...] = ()
    function: str = ""
    asked: bool = True
    """False: it is the default, of which nothing is said where it does not apply."""


def sample() -> str:
    """Return the opening of Alice's Adventures in Wonderland (Lewis Carroll, 1865), which is in the public domain."""
    return (resources.files("tracekit.measure") / _SAMPLE).read_text(encoding="utf-8")


def text_of(path: Path | None, hint: str = "Name a text file.") -> str:
    """Return the text in a file, or the sample for None. Raises InputError if it cannot be read, or is empty."""
    if path is None:
        return sample()
    what = f"{path} cannot be read as text."
    try:
        with reading(what, hint):
            text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(what, "It is not in UTF-8.", hint) from error
    if not text.strip():
        raise InputError(what, "It is empty.", hint)
    return text


def evaluation_of(given: str) -> Evaluation:
    """Return the evaluation that `--eval` names. Raises InputError if it is none."""
    path, (module, colon, name) = Path(given), given.partition(":")
    if not path.exists() and colon and all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        return Evaluation(given, function=given)
    if path.suffix in (".npy", ".json"):
        return Evaluation(path.name, ids=_ids(path))
    return Evaluation(path.name, text=text_of(path, _HINT))


def _ids(path: Path) -> tuple[int, ...]:
    what = f"{path} cannot be read as token ids."
    try:
        with reading(what, _HINT), path.open("rb") as file:
            ids = np.load(file, allow_pickle=False) if path.suffix == ".npy" else _decoded(file.read())
    except (ValueError, EOFError, msgspec.MsgspecError) as error:
        raise InputError(what, first_line(error), _HINT) from error
    if ids.dtype.kind not in "iu" or ids.size < 2 or ids.min() < 0:
        raise InputError(what, "It does not hold two or more integers from 0.", _HINT)
    return tuple(ids.ravel().tolist())


def _decoded(content: bytes) -> npt.NDArray[np.int64]:
    return np.array(msgspec.json.decode(content, type=list[int]), dtype=np.int64)


def judged(before: Subject, after: Subject, evaluation: Evaluation | None) -> tuple[Quality | None, str]:
    """Return what the evaluation says of both models, or else why it says nothing; with random weights, neither."""
    if evaluation is None or before.settings.weights == "random":
        return None, ""
    try:
        check(before, evaluation)
        judge = _scores if evaluation.function else _perplexities
        return judge(before, after, evaluation), ""
    except (InputError, RuntimeError) as error:  # also if memory is too small for the logits: the speed is kept
        why = str(error) if isinstance(error, InputError) else first_line(error)
        return None, f"The quality was not measured. {why}" if evaluation.asked else ""


def check(subject: Subject, evaluation: Evaluation) -> None:
    """Raise InputError if the model cannot be judged by the evaluation. With random weights nothing is judged."""
    if subject.settings.weights == "random":
        return
    if subject.training:
        why = "Each step of training changes the weights."
        raise InputError("A run of training is not evaluated.", why, "Profile with another --workload.")
    if evaluation.function:
        _function(evaluation.function)
    elif kind_of(config_of(subject.model)) != "a decoder":
        what = f"{subject.settings.shown_name} has no perplexity."
        raise InputError(what, "It does not predict the next token.", "Name a function: --eval module:name.")
    else:
        _tokens(subject, evaluation)


def token_windows(subject: Subject, evaluation: Evaluation) -> Iterator[Any]:
    """Yield the tokens of an evaluation, 512 at a time (the last ones may be fewer)."""
    ids = require("torch").tensor(_tokens(subject, evaluation), device=subject.settings.torch_device)
    yield from ids.split(min(_WINDOW, longest_sequence(config_of(subject.model))))


def whole_windows(subject: Subject, text: str) -> list[Any]:
    """Return the tokens of a text in windows of the same length; the rest is left out."""
    every = list(token_windows(subject, Evaluation("", text=text)))
    return [window for window in every if len(window) == len(every[0])]


def _tokens(subject: Subject, evaluation: Evaluation) -> tuple[int, ...]:
    """Return token ids. With random weights, they are the text's bytes: such a model has no tokenizer of its own."""
    settings, size = subject.settings, int(config_of(subject.model).vocab_size)
    if evaluation.ids:
        if max(evaluation.ids) >= size:
            why = f"It holds the id {max(evaluation.ids):,}; the model has {size:,} tokens."
            raise InputError(f"{evaluation.name} is not of this model.", why, "Use the model's own tokenizer.")
        return evaluation.ids
    if settings.weights == "random":
        return tuple(byte % size for byte in evaluation.text.encode())
    location = models.find(settings.model).location
    try:
        tokenizer = require("transformers").AutoTokenizer.from_pretrained(location, trust_remote_code=False)
    except Exception as error:  # a folder without a tokenizer makes transformers raise any exception
        what, hint = f"{settings.shown_name} has no tokenizer.", "Give token ids: --eval FILE.npy or FILE.json."
        raise InputError(what, first_line(error), hint) from error
    return tuple(tokenizer(evaluation.text).input_ids)


def _perplexities(before: Subject, after: Subject, evaluation: Evaluation) -> Quality:
    torch, read = require("torch"), list[Any]()
    for window in token_windows(before, evaluation):
        if len(window) > 1:
            logits = _logits(before, window)
            changed = logits if after is before else _logits(after, window)
            read.append(_compare_logits(logits, changed, window[1:]))
    losses, later, apart, same = (torch.cat(each).cpu().numpy() for each in zip(*read, strict=True))
    return Quality(
        by=evaluation.name,
        measure="perplexity",
        items=len(losses),
        before=_perplexity(losses.mean()),
        after=_perplexity(later.mean()),
        change=_change(losses, later, _perplexity, _BLOCK),
        agreement=float(same.mean()),
        kl=max(0.0, _finite(apart.mean())),
    )


def _logits(subject: Subject, window: Any) -> Any:
    model: Any = subject.model
    with require("torch").inference_mode(), subject.numerics():
        return model(input_ids=window[None], use_cache=False).logits[0, :-1].float()


def _compare_logits(before: Any, after: Any, expected: Any) -> tuple[Any, ...]:
    """Return per position both losses, the Kullback-Leibler divergence, and whether the likeliest token is the same."""
    functional = require("torch").nn.functional
    one, other = before.log_softmax(-1), after.log_softmax(-1)
    losses = (functional.nll_loss(each, expected, reduction="none").double() for each in (one, other))
    apart = functional.kl_div(other, one, reduction="none", log_target=True).sum(-1)
    return (*losses, apart.double(), (before.argmax(-1) == after.argmax(-1)).double())


def _perplexity(loss: float) -> float:
    return _finite(np.exp(min(loss, 100.0)))


def _finite(value: Any) -> float:
    return float(np.clip(np.nan_to_num(value, nan=LARGEST), -LARGEST, LARGEST))


def _scores(before: Subject, after: Subject, evaluation: Evaluation) -> Quality:
    function = _function(evaluation.function)
    one, other = (_returned(function, each, evaluation.function) for each in (before, after))
    if len(one) != len(other):
        why = f"{len(one):,} numbers before, {len(other):,} after."
        raise InputError(f"{evaluation.function} cannot be compared.", why, "Return as many numbers for any model.")
    several = _change(one, other, _finite, 1) if len(one) > 1 else None
    return Quality(evaluation.function, "score", len(one), float(one.mean()), float(other.mean()), several, None, None)


def _function(named: str) -> Callable[[Any], Any]:
    """Import the function that the user named on the command line, from the working directory or a package."""
    module, _, name = named.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    what, hint = f"{named} cannot be used.", "Name a function that takes a model, as module:name."
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # it is code of the user, which may raise anything
        raise InputError(what, f"{type(error).__name__}: {first_line(error)}", hint) from error
    if not callable(found):
        raise InputError(what, "It is not a function.", hint)
    return found


def _returned(function: Callable[[Any], Any], subject: Subject, named: str) -> Floats:
    """Return the scores of a model: one, or one for each of its examples."""
    try:
        with require("torch").inference_mode(), subject.numerics():
            result = function(subject.model)
            synchronize()
        values = getattr(result, "tolist", lambda: result)()
        scores = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except Exception as error:  # it is code of the user, which may raise anything
        raise InputError(f"{named} failed.", f"{type(error).__name__}: {first_line(error)}") from error
    if scores.ndim != 1 or not scores.size or not (np.abs(scores) <= LARGEST).all():
        raise InputError(f"{named} returned no score.", "It must return a number, or one for each example.")
    return scores


def _change(before: Floats, after: Floats, statistic: Callable[[float], float], block: int) -> Interval:
    """Return the change of a statistic of the mean, with the 95 % interval of a bootstrap over pairs of blocks."""
    starts = np.arange(0, len(before), max(1, min(block, len(before) // 20)))
    sums, counts = [np.add.reduceat(each, starts) for each in (before, after)], np.diff([*starts, len(before)])
    generator = np.random.default_rng(SEED)

    def drawn(chosen: npt.NDArray[np.int64]) -> float:
        first, last = (statistic(each[chosen].sum() / counts[chosen].sum()) for each in sums)
        return last - first

    every = np.arange(len(starts))
    low, high = np.percentile([drawn(generator.choice(every, len(every))) for _ in range(_DRAWS)], _ENDS)
    expected = drawn(every)
    return Interval(min(float(low), expected), expected, max(float(high), expected))
