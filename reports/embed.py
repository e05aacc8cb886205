"""Parts of a self-contained page: assets, compressed data, and a content-security policy."""

import base64
import gzip
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any


def asset(name: str) -> str:
    """Return the text of a file in reports/assets."""
    return (files("tracekit.reports") / "assets" / name).read_text("utf-8")


@cache
def plotly_source() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


@cache
def packed_plotly() -> str:
    return packed(plotly_source())


def packed(text: str) -> str:
    """Return `text` as base64 of gzip, without a time stamp: equal texts give equal results."""
    return base64.b64encode(gzip.compress(text.encode("utf-8"), 9, mtime=0)).decode("ascii")


def packed_json(value: Any) -> str:
    """Return `value` as JSON, packed."""
    return packed(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def content_security_policy(*scripts: str) -> str:
    """Return a policy that allows exactly these scripts and no network. Plotly needs inline styles."""
    hashes = " ".join(_source_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _source_hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode('utf-8')).digest()).decode('ascii')}'"
