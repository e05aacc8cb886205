"""Report the progress of a long job."""

from collections.abc import Callable

Say = Callable[[str], None]


def silent(_: str) -> None:
    """Discard progress messages; the default of the Python API."""
