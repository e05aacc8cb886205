"""Figures of a serving plan as SVG: the cache over time, and the settings of a search."""

from collections.abc import Iterator
from html import escape
from typing import Any

import pandas as pd

from tracekit.analyzers.serving import ServePlan
from tracekit.reports.words import duration, percent, significant

_WIDTH, _HEIGHT, _LEFT, _BASE = 300, 120, 40, 100


def panel(run: pd.DataFrame) -> str:
    """Return a panel of KV cache use and waiting requests over time, each with its own scale."""
    end, most = max(float(run["time_s"].iloc[-1]), 1e-9), max(int(run["waiting"].max()), 1)
    full = max(float(run["used"].max()), 1e-9)
    lines = [
        f'<polyline class="{line}" points="{_points(run["time_s"] / end, values)}"/>'
        for line, values in (("line-1", run["used"] / full), ("line-2", run["waiting"] / most))
    ]
    label = f"KV cache (blue), up to {most:,} waiting (red)"
    return _figure("KV cache over time", "".join(lines), percent(full), duration(1e6 * end), label)


def pareto(plan: ServePlan) -> str:
    """Return the searched settings: tokens per second of a GPU over the time between tokens."""
    points = [
        (name, best, tpot, rate)
        for name, best, tpot, rate in _settings(plan)
        if tpot == tpot  # requests of one token have no time between tokens
    ]
    if not points:
        return ""
    across, up = max(point[2] for point in points), max(point[3] for point in points)
    placed = [(name, best, *_place(tpot / across, rate / up)) for name, best, tpot, rate in points]
    marks = [
        f'<circle class="{"line-1" if best else "line-2"}" r="{3 if best else 1.5}" cx="{x:.1f}" cy="{y:.1f}">'
        f"<title>{escape(name)}</title></circle>"
        for name, best, x, y in placed
    ]
    front = " ".join(f"{x:.1f},{y:.1f}" for x, y in sorted((x, y) for _, best, x, y in placed if best))
    label = "tokens/s of a GPU over time between tokens; large: nothing is better in both"
    drawn = f'<polyline class="line-1" points="{front}"/>{"".join(marks)}'
    return _figure("Settings", drawn, rounded(up), duration(1e3 * across), label)


def _settings(plan: ServePlan) -> Iterator[tuple[str, bool, float, float]]:
    """Yield name, whether nothing is better, milliseconds between tokens, and tokens per second of a GPU."""
    for each, best in zip(plan.searched, plan.best, strict=True):
        if each.found:
            rate = each.found.tokens_per_s.expected / each.deployment.gpus
            yield each.name, best, each.found.tpot_ms.expected, rate


def _place(across: float, up: float) -> tuple[float, float]:
    return _LEFT + (_WIDTH - _LEFT) * across, _BASE - (_BASE - 24) * up


def rounded(value: float) -> str:
    """Return a rate with three digits."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else significant(value)


def _figure(name: str, drawn: str, top: str, right: str, label: str) -> str:
    axes = (
        f'<path class="axis" d="M{_LEFT} 8V{_BASE}H{_WIDTH}"/>'
        f'<text class="label" x="{_LEFT - 4}" y="14">{escape(top)}</text>'
        f'<text class="label" x="{_WIDTH}" y="{_BASE + 12}">{escape(right)}</text>'
        f'<text x="{_LEFT + 6}" y="14">{escape(label)}</text>'
    )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(name)}">{drawn}{axes}</svg>'


def _points(x: Any, y: Any) -> str:
    step = max(1, len(x) // 300)
    pairs = zip(x[::step], y[::step], strict=True)
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in (_place(a, b) for a, b in pairs))
