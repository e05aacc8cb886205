"""Formats names for people: models, GPUs, and names that are too long to show in full."""

import re
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.analyzers.results import Source


_MODELS = {"gpt2": "GPT-2", "bert": "BERT", "llama": "Llama", "qwen2": "Qwen2", "mistral": "Mistral", "vit": "ViT"}
_LETTERS_WITH_A_VOWEL = frozenset("AEFHILMNORSX8")
"""Letters and digits whose spoken names begin with a vowel: an H200, an 8."""
_VOWELS = frozenset("AEIOU")
_LESS_TELLING = (
    re.compile(r"^void |(?<=[>\w])\([^()]*(?:\([^()]*\)[^()]*)*\)$"),
    re.compile(r"\(anonymous namespace\)::|(?<![\w}])(?:[A-Za-z_]\w*::)+(?=[A-Za-z_(])"),
    re.compile(r"::\{lambda[^}]*\}|(?:::)?operator\(\)\([^()]*\)(?: const)?|, array<char ?\*, \d+\w*>"),
)
"""Parts that are removed from a name, in this order, while it is too long: parameters, namespaces, functor wrappers."""
_SHAPE = re.compile(r"\d+x\d+(?:x\d+)*")
_LEAST_WITH_SHAPE = 12

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, marks that reorder text, and halves of surrogate pairs."""


def printable(name: str) -> str:
    """Return `name` with every character of `UNPRINTABLE` replaced, so that it can neither move nor hide other text."""
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", name)


def shell_word(text: str) -> str:
    """Return text from a trace as one word of a command that a reader may copy: neither code nor an option."""
    word = shlex.quote(printable(text))
    return f"./{word}" if word.startswith("-") else word


def model(name: str) -> str:
    """Return a model's name as people write it: gpt2-medium -> GPT-2-medium, mistral-7b -> Mistral-7B.

    Only the last part of a path is used.
    """
    first, *rest = name.rstrip("/").rsplit("/", 1)[-1].split("-")
    head = next((nice + first[len(key) :] for key, nice in _MODELS.items() if first.startswith(key)), first)
    return "-".join([head, *(part.upper() if part[:1].isdigit() else part for part in rest)])


def device(source: "Source") -> str:
    """Return a short name of the device: "H200", "T4", "CPU"; "" if it is unknown."""
    if source.device == "cpu":
        return "CPU"
    name = source.gpu.name if source.gpu else source.device_name
    for maker in ("NVIDIA ", "AMD ", "GeForce ", "Instinct ", "Tesla "):
        name = name.removeprefix(maker)
    return name


def with_article(name: str) -> str:
    """Return a name with its article: an H200, a T4, an A100, an RTX 4090, a GB200, a Radeon, the CPU."""
    if name == "CPU":
        return "the CPU"
    word = name.split(" ", 1)[0].split("-", 1)[0]
    is_spelled = word.isupper() or any(character.isdigit() for character in word)
    vowels = _LETTERS_WITH_A_VOWEL if is_spelled else _VOWELS
    begins_with_vowel = word[:1].upper() in vowels or word.startswith(("11", "18")) or word == "Nvidia"
    return f"{'an' if begins_with_vowel else 'a'} {name}"


def lower_first(text: str) -> str:
    """Lower the first letter, unless the first word is an acronym or a name such as "CUDA" or "PyTorch"."""
    word = text.split(" ", 1)[0]
    return text[:1].lower() + text[1:] if word[1:].islower() or len(word) == 1 else text


def in_sentence(title: str) -> str:
    """Return titles as in a sentence: "half precision and torch.compile with max-autotune"."""
    *others, last = [lower_first(part).replace(", ", " with ") for part in title.split(" + ")]
    return f"{', '.join(others)} and {last}" if others else last


def inside(path: str, above: str) -> str:
    """Return the part of a layer's path below the layer `above`."""
    return path.removeprefix(above).lstrip("./") if above and path.startswith(above) and path != above else path


ARROW = " → "
"""Stands between the names of a thing in one run and in another."""


@lru_cache(1 << 13)
def shortened(name: str, limit: int) -> str:
    """Return the name of a kernel, op or layer class in at most `limit` characters.

    Parameters, namespaces and wrappers of functors are removed first. If the name is still too long, more of its end
    than of its beginning is kept, and a shape such as 128x256x64 is kept whole, because its first number is M.
    Of "a → b", a part of both names is kept.
    """
    a, arrow, b = name.partition(ARROW)
    if len(name) > limit and arrow:
        a = shortened(a, max((limit - len(ARROW)) // 2, limit - len(ARROW) - len(b)))
        return f"{a}{ARROW}{shortened(b, limit - len(ARROW) - len(a))}"
    simpler = name
    for pattern in (None, *_LESS_TELLING):
        simpler = pattern.sub("", simpler) if pattern else simpler
        if len(simpler) <= limit:
            return simpler
    return _cut(simpler, limit)


def _cut(name: str, limit: int) -> str:
    head = (limit - 1) // 3
    start = len(name) - (limit - 1 - head)
    shape = next((each for each in _SHAPE.finditer(name) if each.end() > head and each.start() < start), None)
    if shape is None or limit < _LEAST_WITH_SHAPE + len(shape[0]):
        return f"{name[:head]}…{name[start:]}"
    if shape.end() >= start:
        head = limit - 1 - (len(name) - shape.start())
        return f"{name[: max(head, 1)]}…{name[shape.start() :][: limit - 2]}"
    room = limit - 2 - len(shape[0])
    return f"{name[: room // 3]}…{shape[0]}…{name[len(name) - (room - room // 3) :]}"


def middle_truncated(name: str, limit: int) -> str:
    """Return at most `limit` characters of a layer's path; the middle is left out."""
    if len(name) <= limit:
        return name
    head = (limit - 1) * 2 // 3
    return f"{name[:head]}…{name[len(name) - (limit - 1 - head) :]}"


TABLES = (
    "layers",
    "layer_types",
    "layer_parts",
    "layer_ops",
    "phases",
    "steps",
    "ops",
    "kernels",
    "ranges",
    "counters_comparison",
    "idle_causes",
    "host_causes",
    "fusion_plan",
    "predicted_work",
    "problems",
)
