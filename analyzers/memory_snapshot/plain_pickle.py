"""Reads a pickle of plain values without executing anything. A pickle that names any class or function is refused."""

import pickle
from pathlib import Path
from typing import Any, NoReturn

from tracekit.analyzers.errors import InputError

MOST_BYTES = 4 << 30
_HINT = "Name a file that torch.cuda.memory._dump_snapshot() wrote."
_DAMAGE = (
    *(pickle.UnpicklingError, EOFError, AttributeError, ImportError, LookupError, TypeError, ValueError),
    *(ArithmeticError, RecursionError, MemoryError),
)


class _Plain(pickle.Unpickler):
    """Builds numbers, texts, lists, tuples, dicts and sets."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}, and nothing in it may be executed")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to another file")


def read_plain(path: Path) -> Any:
    """Return the value of a pickle. Raises InputError if it is damaged or holds anything but plain values."""
    what = f"{path} cannot be read."
    try:
        if not path.is_file():
            raise InputError(what, "It is not a file." if path.exists() else "There is no such file.", _HINT)
        if path.stat().st_size > MOST_BYTES:
            raise InputError(what, f"It is larger than {MOST_BYTES >> 30} GiB.", _HINT)
        with path.open("rb") as file:
            return _Plain(file).load()
    except OSError as error:
        raise InputError(what, f"{error.strerror or error}.", _HINT) from error
    except _DAMAGE as error:
        raise InputError(
            what, f"It is not a pickle of plain values: {error or type(error).__name__}.", _HINT
        ) from error
