"""The errors that a person sees: what happened, why, and what to try."""


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
