"""Convert microseconds, as traces write them, to integer nanoseconds exactly."""

import re
from collections.abc import Sequence

import msgspec
import numpy as np

LAST_US = 9e15
"""Largest time in µs (the year 2255) that fits int64 nanoseconds."""

MISSING, NEGATIVE = -1, -2
"""Sentinels for an absent and a negative duration."""

_LONGEST_US = 4e15
_LAST_EXACT_US = 2.0**43
"""Time in µs below which a double distinguishes three decimals of a microsecond."""

_NANOSECOND_DIGITS = re.compile(rb"(\d+)\.(\d{3,18})\Z")
_decode_floats = msgspec.json.Decoder(list[float | None]).decode


def to_ns(us: np.ndarray) -> np.ndarray:
    """Convert float microseconds (finite, below LAST_US) to int64 nanoseconds; the fraction is rounded separately."""
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


def durations_ns(us: np.ndarray) -> np.ndarray:
    """Convert float microseconds (NaN: missing) to int64 nanoseconds, at most 127 years."""
    missing, negative = np.isnan(us), us < 0
    ns = to_ns(np.clip(np.where(missing, 0, us), 0, _LONGEST_US))
    ns[missing], ns[negative] = MISSING, NEGATIVE
    return ns


def starts_us(texts: Sequence[msgspec.Raw]) -> np.ndarray:
    """Parse JSON numbers as floats; NaN for anything else."""
    try:
        return np.array(_decode_floats(b"[" + b",".join(texts) + b"]"), dtype=np.float64)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return np.array([_number(bytes(t)) for t in texts], dtype=np.float64)


def starts_ns(texts: Sequence[msgspec.Raw], us: np.ndarray) -> np.ndarray:
    """Convert texts, whose floats are `us` (finite, below LAST_US), to int64 nanoseconds.

    A double cannot hold an absolute time with nanosecond digits, so such a time is parsed from its text.
    """
    ns = to_ns(us)
    for i in np.flatnonzero(us >= _LAST_EXACT_US).tolist():
        digits = _NANOSECOND_DIGITS.match(bytes(texts[i]))
        if digits:
            scale = 10 ** len(digits[2])
            ns[i] = (int(digits[1] + digits[2]) * 2000 + scale) // (2 * scale)
    return ns


def _number(text: bytes) -> float:
    try:
        return float(text.strip(b'"'))
    except ValueError:
        return float("nan")
