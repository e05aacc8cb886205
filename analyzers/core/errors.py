"""Errors that are shown to users: what happened, why, and what to try."""

from collections.abc import Iterator
from contextlib import contextmanager


class TracekitError(Exception):
    """An expected failure. The command line prints it in three short sentences, and exits with its status, or else with
    that of the command's errors."""

    status: int | None = None

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        super().__init__(" ".join(part for part in (what, why, hint) if part))
        self.what, self.why, self.hint = what, why, hint


class InputError(TracekitError):
    """The input cannot be used: it is missing, empty, of an unknown format, or without usable events."""


class UnknownNameError(TracekitError):
    """The name of a GPU, a model or an optimization is unknown; the hint gives the most similar names."""


class MissingPackageError(TracekitError):
    """A required optional package is not installed."""


@contextmanager
def reading(what: str, hint: str) -> Iterator[None]:
    """Convert an OSError in the block to InputError: a missing file, a folder, no permission."""
    try:
        yield
    except OSError as error:
        raise InputError(what, f"{error.strerror}.", hint) from error
