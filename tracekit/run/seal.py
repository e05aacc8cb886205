"""Tells the scripts that this user's tracekit has run from those that somebody else's run folder names.

A run folder may come from anywhere, and nothing of it may be executed. A script is run again only if run.json bears a
seal: a code that only the holder of a key can compute. The key is in the user's configuration folder.
"""

import hmac
import json
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tracekit.run.environment import configuration_folder

_BYTES = 32


def seal_of(script: str, arguments: Sequence[str], digest: str) -> str:
    """Return the seal of a script with these arguments and this SHA-256; "" if no key can be kept."""
    with suppress(OSError):
        return _code(_key(), script, arguments, digest)
    return ""


def is_ours(code: str, script: str, arguments: Sequence[str], digest: str) -> bool:
    """Return whether `code` is the seal that this user's tracekit gave."""
    own = seal_of(script, arguments, digest)
    return bool(own) and hmac.compare_digest(own.encode(), code.encode())


def _code(key: bytes, *sealed: object) -> str:
    return hmac.digest(key, json.dumps(sealed).encode(), "sha256").hex()


def _key() -> bytes:
    """Return the user's key, which is made at the first use. Raises OSError if it cannot be kept."""
    path: Path = configuration_folder() / "key"
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        new = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(new, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
    key = path.read_bytes()
    if len(key) != _BYTES:
        raise OSError(f"{path} is damaged")
    return key
