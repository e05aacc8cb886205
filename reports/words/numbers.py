"""Formats numbers with three significant digits and a unit. NaN becomes an en dash."""

import math
from typing import Any

import pandas as pd

from tracekit.analyzers.core import Interval
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import Latency

ABSENT = "–"
_TIME = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"))
_DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def duration(microseconds: float) -> str:
    """Return a duration as "12.3 µs", "4.56 ms" or "1.20 s"."""
    if math.isnan(microseconds):
        return ABSENT
    scale, unit = next((row for row in _TIME if abs(microseconds) >= row[0]), _TIME[-1])
    return f"{significant(microseconds / scale)} {unit}"


def percent(share: float) -> str:
    """Return a fraction as "87 %", "3.4 %" or "< 0.1 %". Only 1.0 becomes "100 %"."""
    if math.isnan(share):
        return ABSENT
    value = 100 * share
    if 0 < value < 0.1:
        return "< 0.1 %"
    if 99 < value < 100:
        return f"{min(value, 99.9):.1f} %"
    return f"{value:.1f} %" if 0 < value < 9.95 else f"{value:.0f} %"


def quantity(value: float, unit: str) -> str:
    """Return a quantity with a decimal prefix, such as "1.23 GFLOP" or "45.6 MB"."""
    if math.isnan(value):
        return ABSENT
    scale, prefix = next((row for row in _DECIMAL if abs(value) >= row[0]), _DECIMAL[-1])
    digits = f"{value:.0f}" if scale == 1 and value == int(value) else significant(value / scale)
    return f"{digits} {prefix}{unit}".rstrip()


def speedup(interval: Interval) -> str:
    """Return an interval as "6.8–8.1×", with two decimals if its upper end is below 2."""
    low, high = (times(end, interval.high) for end in (interval.low, interval.high))
    return high if low == high else f"{low.removesuffix('×')}–{high}"


def times(value: float, largest: float) -> str:
    """Return a ratio as "7.4×", with two decimals if `largest` is below 2 or `value` below 1."""
    return f"{value:.{2 if largest < 2 or value < 1 else 1 if value < 10 else 0}f}×"


def measured(interval: Interval) -> str:
    """Return a measured ratio as "2.14×", "7.4×" or "12×"; it has more digits than a predicted one."""
    value = interval.expected
    return f"{value:.{2 if value < 4 else 1 if value < 10 else 0}f}×"


def significant(value: float) -> str:
    """Return `value` with three significant digits and grouped thousands, never in scientific notation."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else ABSENT
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def changed(interval: Interval) -> str:
    """Return a measured change as "+0.85 (+0.21 to +1.40)"."""
    low, expected, high = (f"{'+' * (end > 0)}{significant(end)}" for end in _ends(interval))
    return f"{expected} ({low} to {high})"


def _ends(interval: Interval) -> tuple[float, float, float]:
    return interval.low, interval.expected, interval.high


def rows_of(frame: pd.DataFrame) -> list[Any]:
    """Return the rows as named tuples, whose fields are the columns."""
    return list(frame.itertuples())


FIRST, BETWEEN = "time_to_first_token", "time_between_tokens"


def token_times(analysis: Analysis) -> str:
    """Return the sentence; "" for a run that does not generate."""
    capture = analysis.source.capture
    if capture is None or FIRST not in capture.phases:
        return ""
    between = capture.phases.get(BETWEEN)
    parts = [f"first after {_time(capture.phases[FIRST])}"]
    if between:
        parts += [f"then one each {_time(between)}", f"{_rate(between, capture.batch_size)} tokens/s while decoding"]
    if capture.source == "modelled":
        parts[0] = f"MODELLED {parts[0]}"
    return ", ".join(parts)


def tokens_per_s(between: Latency, batch_size: int) -> float:
    """Return the tokens of a batch that a step of decoding yields, over its time."""
    return max(batch_size, 1) * 1e6 / between.median_us


def _time(latency: Latency) -> str:
    spread = f" ({duration(latency.p10_us)} to {duration(latency.p90_us)})" if latency.p90_us > latency.p10_us else ""
    return duration(latency.median_us) + spread


def _rate(between: Latency, batch_size: int) -> str:
    return significant(tokens_per_s(between, batch_size))
