"""The errors that a person sees: what happened, why, and what to try."""

from collections.abc import Iterator
from contextlib import contextmanager


class TracekitError(Exception):
    """An expected failure. The command line prints it in three short sentences and exits 1."""

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        super().__init__(" ".join(part for part in (what, why, hint) if part))
        self.what, self.why, self.hint = what, why, hint


class InputError(TracekitError):
    """The input cannot be read: missing, empty, of an unknown format, or without usable events."""


class UnknownNameError(TracekitError):
    """A name (of a GPU, a model, an optimization) is not known; the hint gives the nearest ones."""


class MissingPackageError(TracekitError):
    """An optional package is needed for this and is not installed."""


@contextmanager
def reading(what: str, hint: str) -> Iterator[None]:
    """Raises InputError where the system refuses what the block reads: no such file, a folder, no permission."""
    try:
        yield
    except OSError as error:
        raise InputError(what, f"{error.strerror}.", hint) from error
