"""Passes of a running engine beside those of its twin, our model of the engine, as a sentence, a table and values for
JSON. A pass that is left out is predicted by a fit to all others; NaN without others. Off: predicted / recorded - 1."""

import math
from statistics import median
from typing import Any

from tracekit.analyzers.serving import ComparedPass, Comparison
from tracekit.reports.document import Table
from tracekit.reports.words import duration, percent, significant

_HEAD = (
    *("pass", ">decoding", ">tokens of prompts", ">recorded", ">its host"),
    *(">twin", ">off", ">fitted to the others", ">off"),
)
_ROWS_IN_TERMINAL = 12


def sentence(comparison: Comparison) -> str:
    """Return how far the twin is from the passes, and what the fit changes."""
    passes, fitted = comparison.passes, comparison.fitted
    errors = [abs(_off(each.left_out_s, each)) for each in passes if math.isfinite(each.left_out_s)]
    error = percent(median(abs(_off(each.twin_s, each)) for each in passes))
    count = "its pass" if len(passes) == 1 else f"its {len(passes)} passes"
    fit = f"fitted to all other passes, {percent(median(errors))}" if errors else "it has no second one to try a fit"
    changed = {name: factor for name, factor in sorted(fitted.factors.items()) if factor != 1.0}
    factors = ", ".join(f"{name} {significant(factor)}" for name, factor in changed.items()) or "the same"
    host = fitted.host_s if any(not each.batch.prompts for each in passes) else fitted.prompts_host_s
    unread = f" {comparison.unknown} more say nothing of their batch." if comparison.unknown else ""
    return (
        f"In the trace, the twin is {error} off for {count} (median); {fit}.{unread} The host takes "
        f"{duration(1e6 * host)} of a pass; recorded time relative to the twin's: {factors}."
    )


def table(comparison: Comparison) -> Table:
    rows = [_row(place, each) for place, each in enumerate(comparison.passes)]
    return Table(_HEAD, rows, first=_ROWS_IN_TERMINAL)


def _row(place: int, each: ComparedPass) -> tuple[str, ...]:
    batch = each.batch
    return (
        str(place),
        f"{batch.decoding:,}",
        f"{batch.prompt_tokens:,}",
        duration(1e6 * each.recorded.seconds),
        duration(1e6 * each.recorded.host_s),
        duration(1e6 * each.twin_s),
        percent(abs(_off(each.twin_s, each))),
        duration(1e6 * each.left_out_s),
        percent(abs(_off(each.left_out_s, each))),
    )


def record(comparison: Comparison) -> dict[str, Any]:
    """Return the values of the comparison: times in milliseconds, factors recorded / modelled, None without a fit."""
    return {
        "host_ms": 1e3 * comparison.fitted.host_s,
        "prompts_host_ms": 1e3 * comparison.fitted.prompts_host_s,
        "factors": dict(comparison.fitted.factors),
        "unknown": comparison.unknown,
        "passes": [_values(each) for each in comparison.passes],
    }


def _values(each: ComparedPass) -> dict[str, Any]:
    left_out = math.isfinite(each.left_out_s)
    return {
        "batch": each.batch._asdict(),
        "named": each.recorded.batch is not None,
        "recorded_ms": 1e3 * each.recorded.seconds,
        "host_ms": 1e3 * each.recorded.host_s,
        "device_ms": {name: 1e3 * seconds for name, seconds in each.recorded.device_s.items()},
        "twin_ms": 1e3 * each.twin_s,
        "error": _off(each.twin_s, each),
        "left_out_ms": 1e3 * each.left_out_s if left_out else None,
        "left_out_error": _off(each.left_out_s, each) if left_out else None,
    }


def _off(seconds: float, each: ComparedPass) -> float:
    return seconds / each.recorded.seconds - 1
