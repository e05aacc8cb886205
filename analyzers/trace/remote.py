"""Open traces at URLs (s3://, https://, ...) with fsspec."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from tracekit.analyzers.core import InputError, MissingPackageError, installing

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SECRET = re.compile(r"(?<=//)[^/@]*@|[?#].*\Z", re.DOTALL)


def is_url(path: object) -> bool:
    """Return whether a path has a scheme. A drive letter is not a scheme."""
    return isinstance(path, str) and _URL.match(path) is not None


def shown(url: str) -> str:
    """Return the URL without parts that may be secret: the query (presigned URLs) and the password."""
    return _SECRET.sub("", url)


@contextmanager
def open_url(url: str) -> Iterator[BinaryIO]:
    """Open the file at a URL. Raises InputError, and MissingPackageError without fsspec or its driver."""
    with _opened(url) as stream:
        yield cast(BinaryIO, _Stream(stream, url))


class _Stream:
    """Reads from a driver, whose exceptions become InputErrors."""

    def __init__(self, stream: Any, url: str) -> None:
        self._stream, self._url = stream, url

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size)
        except Exception as error:  # each driver raises its own exceptions
            raise _unreadable(self._url, error) from error


def _opened(url: str) -> Any:
    try:
        import fsspec
    except ImportError as error:
        raise _missing(url, "fsspec is not installed.") from error
    try:
        return fsspec.open(url, "rb").open()
    except ImportError as error:
        raise _missing(url, f"{error}.".replace("..", ".")) from error
    except Exception as error:  # each driver raises its own exceptions
        raise _unreadable(url, error) from error


def _missing(url: str, why: str) -> MissingPackageError:
    return MissingPackageError(f"{shown(url)} needs an optional package.", why, installing("fsspec"))


def _unreadable(url: str, error: Exception) -> InputError:
    why = str(error)
    for secret in _SECRET.findall(url):
        why = why.replace(secret, "")
    why = why.strip() or type(error).__name__
    return InputError(f"{shown(url)} cannot be read.", f"{why}.".replace("..", "."), "Check the URL and your access.")
