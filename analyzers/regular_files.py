"""Opening a path without waiting: a pipe that nobody writes to would block an ordinary open forever."""

import os
import stat
from pathlib import Path
from typing import IO


def open_regular(path: Path) -> IO[bytes]:
    """A file opened for reading. Raises OSError when it is a pipe, a device or a socket."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise OSError(0, "It is not a regular file", str(path))
