"""Checks what a command names before torch is imported, which takes seconds."""

from collections.abc import Iterable


def check_names(models: Iterable[str] = (), gpus: Iterable[str] = (), apply: Iterable[str] = ()) -> None:
    """Raise UnknownNameError with the nearest names for an unknown model, GPU or optimization."""
    from tracekit.advise import parse
    from tracekit.analyzers.cost import hardware
    from tracekit.analyzers.predict import NONE
    from tracekit.capture import find

    for model in models:
        find(model)
    for gpu in gpus:
        hardware.find(gpu)
    for names in apply:
        if names != NONE:
            parse(names)
