"""Numbers as people read them: three significant digits and a unit. NaN is an en dash."""

import math

from tracekit.analyzers.interval import Interval

ABSENT = "–"
_TIME = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"))
_DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def duration(microseconds: float) -> str:
    """12.3 µs, 4.56 ms, 1.20 s."""
    if math.isnan(microseconds):
        return ABSENT
    scale, unit = next((row for row in _TIME if abs(microseconds) >= row[0]), _TIME[-1])
    return f"{significant(microseconds / scale)} {unit}"


def percent(share: float) -> str:
    """87 %, 3.4 %, < 0.1 %; 100 % is all of it, no less."""
    if math.isnan(share):
        return ABSENT
    value = 100 * share
    if 0 < value < 0.1:
        return "< 0.1 %"
    if 99 < value < 100:
        return f"{min(value, 99.9):.1f} %"
    return f"{value:.1f} %" if 0 < value < 9.95 else f"{value:.0f} %"


def quantity(value: float, unit: str) -> str:
    """1.23 GFLOP, 45.6 MB: decimal prefixes."""
    if math.isnan(value):
        return ABSENT
    scale, prefix = next((row for row in _DECIMAL if abs(value) >= row[0]), _DECIMAL[-1])
    digits = f"{value:.0f}" if scale == 1 and value == int(value) else significant(value / scale)
    return f"{digits} {prefix}{unit}".rstrip()


def speedup(interval: Interval) -> str:
    """6.8–8.1×; 1.08–1.31×, because below twice the second decimal counts."""
    low, high = (times(end, interval.high) for end in (interval.low, interval.high))
    return high if low == high else f"{low.removesuffix('×')}–{high}"


def times(value: float, largest: float) -> str:
    """7.4×; in an interval, two decimals when its `largest` is below 2, or it is below 1."""
    return f"{value:.{2 if largest < 2 or value < 1 else 1 if value < 10 else 0}f}×"


def measured(interval: Interval) -> str:
    """2.14×, 7.4×, 12×: what was measured is known better than what is predicted."""
    value = interval.expected
    return f"{value:.{2 if value < 4 else 1 if value < 10 else 0}f}×"


def significant(value: float) -> str:
    """Three significant digits, never in scientific notation, thousands grouped."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else ABSENT
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
