"""Parses the units of a report, scaled or not: "ns", "usecond", "Mbyte", "Tbyte/second", "inst/cycle", "%"."""

import re
from functools import cache

_PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_NAMES = {"s": "second", "sec": "second", "b": "byte", "bytes": "byte", "hz": "hz", "Hz": "hz"}
_SCALED = re.compile(r"([numKkMGTP]?)(second|sec|s|byte|bytes|b|hz|Hz|inst|cycle|sector|warp|thread|request)")


@cache
def scale(unit: str) -> tuple[float, str]:
    """Return the factor to base units (seconds, bytes, hz, bytes per second), and the unit without prefixes."""
    parts = [_part(part) for part in unit.strip().split("/")]
    factor, names = parts[0][0], [name for _, name in parts]
    for below, _ in parts[1:]:
        factor /= below
    return factor, "/".join(names)


def _part(text: str) -> tuple[float, str]:
    match = _SCALED.fullmatch(text)
    if match is None:
        return 1.0, text
    prefix, name = match.groups()
    return _PREFIXES[prefix], _NAMES.get(name, name)
