"""Recognize entries of a trace's metadata that look like an environment or a secret. They are counted, never kept."""

import re

_KEY = re.compile(
    r"(?<![a-z])(env|environ|environment|auth|token)(?![a-z])|env_?vars?(?![a-z])|(auth|access|hub|api|bearer)_?token"
    r"|secret|passw|credential|(api|access|private)_?key",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"(PATH|HOME|USER|HOSTNAME|PWD|SHELL|[A-Z][A-Z0-9]*(_[A-Z0-9]+)+)\Z")
_TOKEN = re.compile(
    r"\b(hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|ASIA|AIza)[A-Za-z0-9_-]{12,}"
    r"|\beyJ[\w-]{8,}\.eyJ|-----BEGIN [A-Z ]*PRIVATE KEY"
)
_RANDOM = re.compile(r"(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?=[^0-9]*[0-9])[A-Za-z0-9+/_=-]{32,}\Z")
_MAX_DEPTH = 16


def is_secret_key(key: str) -> bool:
    """Return whether an entry with this name holds an environment or a secret."""
    return bool(_KEY.search(key))


def looks_secret(key: str, value: object) -> bool:
    """Return whether a top-level entry looks secret, by its key, its value, or anything in the value."""
    return (isinstance(value, str) and bool(_RANDOM.match(value))) or _secret_entry(key, value, 0)


def _secret_entry(key: str, value: object, depth: int) -> bool:
    if isinstance(value, dict):
        if value and _KEY.search(key):
            return True
        return depth < _MAX_DEPTH and any(_secret_entry(str(k), v, depth + 1) for k, v in value.items())
    if isinstance(value, list):
        return depth < _MAX_DEPTH and any(_secret_entry(key, v, depth + 1) for v in value)
    return isinstance(value, str) and value != "" and _secret_text(key, value)


def _secret_text(key: str, value: str) -> bool:
    return bool(_KEY.search(key) or _VARIABLE.match(key) or _TOKEN.search(value))
