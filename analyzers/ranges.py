"""The names of tracekit's ranges. Capture writes them (NVTX and record_function), and analysis recognizes them.

step: 3
phase: decode
module: transformer.h.0.attn (GPT2Attention)
"""

import re

ROOT = "(model)"
"""The path given to the outermost module; no attribute can have this name."""

_RANGE = re.compile(r"(?P<kind>step|phase|module): (?P<path>\S+)(?: \((?P<type>.+)\))?\Z")


def step(index: int) -> str:
    return f"step: {index}"


def phase(name: str) -> str:
    return f"phase: {name}"


def module(path: str, type_name: str) -> str:
    return f"module: {path or ROOT} ({type_name})"


def parse(name: str) -> tuple[str, str, str] | None:
    """Return (kind, path or index, type) of a tracekit range name; None for any other name."""
    match = _RANGE.match(name)
    return (match["kind"], match["path"], match["type"] or "") if match else None
