"""The names of tracekit's ranges: written by capture (NVTX and record_function), recognised in any trace.

step: 3
phase: decode
module: transformer.h.0.attn (GPT2Attention)
"""

import re

ROOT = "(model)"
"""The path of the outermost module, which has none; no attribute can be called so."""

_RANGE = re.compile(r"(?P<kind>step|phase|module): (?P<path>\S+)(?: \((?P<type>.+)\))?\Z")


def step(index: int) -> str:
    return f"step: {index}"


def phase(name: str) -> str:
    return f"phase: {name}"


def module(path: str, type_name: str) -> str:
    return f"module: {path or ROOT} ({type_name})"


def parse(name: str) -> tuple[str, str, str] | None:
    """(kind, path or index, type) of a tracekit range name, or None of any other name."""
    found = _RANGE.match(name)
    return (found["kind"], found["path"], found["type"] or "") if found else None
