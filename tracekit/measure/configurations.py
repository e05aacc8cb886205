"""Parses the names of configurations: dtype, attention and optimizations, joined with "+"."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, cast, get_args

from msgspec.structs import replace

from tracekit.advise import KNOWN, parse
from tracekit.analyzers.core import InputError, UnknownNameError
from tracekit.analyzers.cost import nearest
from tracekit.analyzers.predict import NONE
from tracekit.apply import METHODS, Method, Subject, Training, with_calibrated
from tracekit.run import ATTENTIONS, Attention, Dtype, Settings

_DTYPES = tuple(dtype for dtype in get_args(Dtype) if dtype != "auto")
FORMATS = ("int4", "int8", "nf4", "awq", "smoothquant")
TRAINED = {
    "lora": Training("lora", "none"),
    "qlora": Training("lora", "nf4"),
    **{f"qlora:{to}": Training("lora", to) for to in FORMATS},
    **{f"qat:{to}": Training(True, to) for to in FORMATS},
}
"""Adapters beside frozen weights (plain, or in a format), and weights trained as if they were in a format."""
PLAIN = "base"
"""Name of the unchanged run."""


@dataclass(frozen=True)
class Configuration:
    name: str
    dtype: Dtype | None = None
    attention: Attention | None = None
    optimizations: str = ""
    """Ids, joined with "+"."""
    trained: Training | None = None
    calibrated: Method | None = None

    def settings(self, base: Settings) -> Settings:
        """Return the settings with this configuration's dtype and attention."""
        return base.changed(dtype=self.dtype or base.dtype, attention=self.attention or base.attention)

    def apply(
        self, subject: Subject, windows: Callable[[Subject], Sequence[Any]] = lambda _: (), steps: int = 0
    ) -> Subject:
        """Return the subject in this configuration. Raises TracekitError if it cannot be applied.

        `windows` gives the tokens that quantization is calibrated with, and what is trained is trained with, in `steps`
        if the workload does not train.
        """
        changed = _with_attention(subject, self.attention or subject.settings.attention)
        changed = changed.with_dtype(self.dtype) if self.dtype else changed
        changed = self.trained.applied(changed, windows, steps) if self.trained else changed
        changed = with_calibrated(changed, self.calibrated, windows(changed)) if self.calibrated else changed
        return parse(self.optimizations).apply(changed) if self.optimizations else changed

    def change(self, start: Settings) -> str | None:
        """Return the optimizations that turn a run with settings `start` into this one; None without optimizations."""
        dtype, attention = self.dtype or start.dtype, self.attention or start.attention
        steps = [_DTYPE_STEPS.get((start.dtype, dtype)), _ATTENTION_STEPS.get((start.attention, attention))]
        if self.trained or None in steps:
            return None
        return "+".join(filter(None, (*cast("list[str]", steps), self.calibrated, self.optimizations)))


_KINDS = {"dtype": _DTYPES, "attention": ATTENTIONS, "calibrated": METHODS}
_DTYPE_STEPS = {
    **{(dtype, dtype): "" for dtype in _DTYPES},
    ("fp32", "tf32"): "tf32",
    **{(wide, half): f"half-precision:{half}" for wide in ("fp32", "tf32") for half in ("fp16", "bf16")},
}
_ATTENTION_STEPS = {
    **{(each, each): "" for each in ATTENTIONS},
    ("eager", "sdpa"): "sdpa",
    ("eager", "flash"): "sdpa:flash",
    ("sdpa", "flash"): "sdpa:flash",
}


def grid_names(dtypes: Sequence[str], attentions: Sequence[str], apply: Sequence[str]) -> list[str]:
    """Return the name of a configuration for each dtype, attention and combination of optimizations.

    A part that all share and that needs no name is left out: the dtype "auto", a single attention, "none".
    """
    shown = attentions if len(attentions) > 1 else ("",)
    parts = product(
        ["" if each == "auto" else each for each in dtypes], shown, ["" if each == NONE else each for each in apply]
    )
    return ["+".join(filter(None, each)) or PLAIN for each in parts]


def configuration(name: str) -> Configuration:
    """Parse a configuration's name.

    Raises UnknownNameError for an unknown part, and InputError for parts that exclude each other.
    """
    options: dict[str, Any] = {}
    optimizations = []
    for part in (each.strip().lower() for each in name.split("+")):
        kind = next((kind for kind, names in _KINDS.items() if part in names), "")
        if kind in options:
            raise InputError(
                f"{name} has more than one {kind}.", f"It names {options[kind]} and {part}.", "Leave one out."
            )
        if kind:
            options[kind] = part
        elif part in TRAINED:
            options["trained"] = TRAINED[part]
        elif part != PLAIN:
            optimizations.append(_optimization(part))
    joined = parse("+".join(optimizations)).name if len(optimizations) == 1 else "+".join(optimizations)
    if len(optimizations) > 1:
        parse(joined)
    return Configuration(name.strip(), optimizations=joined, **options)


def _optimization(part: str) -> str:
    name, colon, argument = part.partition(":")
    ids = {written: each.id for each in KNOWN for written in (each.id, *each.aliases)}
    if name not in ids:
        names = [*_DTYPES, *ATTENTIONS, *METHODS, *TRAINED, PLAIN, *ids]
        raise UnknownNameError(f"Configuration '{part}' is not known.", hint=nearest(name, names))
    return f"{ids[name]}{colon}{argument}"


def _with_attention(subject: Subject, attention: Attention) -> Subject:
    if attention == subject.settings.attention:
        return subject
    changed = subject.with_twin()
    model: Any = changed.model
    if not hasattr(model, "set_attn_implementation"):
        raise InputError("Cannot switch attention.", "It is not a transformers model.")
    model.set_attn_implementation("eager" if attention == "eager" else "sdpa")
    return replace(changed, settings=changed.settings.changed(attention=attention))
