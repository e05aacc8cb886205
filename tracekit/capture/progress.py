"""Where a long job says what it is doing."""

from collections.abc import Callable

Say = Callable[[str], None]


def silent(_: str) -> None:
    """For callers that are no command line."""
