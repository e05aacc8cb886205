"""Notebook output for an analysis, a recommendation and a comparison: text, and HTML without scripts or addresses.

Colours are the notebook's own, except those of the bounds.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import pandas as pd

from tracekit.analyzers.compare import Comparison
from tracekit.analyzers.core import Bundle, Renderers
from tracekit.analyzers.results import Analysis, Recommendation
from tracekit.reports.answer.facts import key_figures
from tracekit.reports.answer.headlines import headline
from tracekit.reports.compare import change, described, explained, parts, signed_percent, time
from tracekit.reports.words import (
    duration,
    layer_patterns,
    percent,
    printable,
    printable_lines,
    rows_of,
    sentences,
    shortened,
    speedup,
)
from tracekit.reports.words import lines as lines_of

_COLOURS = {
    "compute": "#d9622b",
    "memory": "#2f7fd0",
    "launch": "#c99a1a",
    "latency": "#c06fa0",
    "transfer": "#1f9a78",
    "unknown": "#88909a",
}
_ROWS, _NAME = 12, 70
_SOFT = "opacity:.7"
_KIND = {"modelled": "modelled: every number is a prediction", "measured": "measured", "imported": "imported"}


def renderers() -> Renderers:
    """Return the functions that render each type for notebooks."""
    return {Analysis: _analysis, Recommendation: _recommendation, Comparison: _comparison}


def _analysis(analysis: Analysis) -> Bundle:
    from tracekit.reports.answer.terminal import summary

    body = [
        _title(headline(analysis)),
        f'<p style="{_SOFT};margin:.2em 0">{_KIND[analysis.source.kind]}{_text(_where(analysis))}</p>',
        _bounds(analysis),
        _facts(analysis),
        *(_advice(advice, rank) for rank, advice in enumerate(analysis.recommendations, 1)),
        _folded("Kernels", _times(analysis.kernels)),
        _folded("Layers", _times(layer_patterns(analysis.layers))),
    ]
    return {"text/plain": summary(analysis), "text/html": _whole(body)}


def _recommendation(advice: Recommendation) -> Bundle:
    plain = f"{advice.title}: predicted {speedup(advice.speedup)}. {sentences(advice.reason)}\n{advice.how_to}"
    return {
        "text/plain": printable_lines(plain),
        "text/html": _whole([_advice(advice, 0, True)]),
    }


def _comparison(comparison: Comparison) -> Bundle:
    from tracekit.reports.compare import full

    sides = (("A", comparison.a), ("B", comparison.b))
    runs = [(letter, side.name, described(side), time(side.latency_ns)) for letter, side in sides]
    rows = [
        (row.name, time(row.a_ns), time(row.b_ns), change(row.change_ns), signed_percent(row.share))
        for row in rows_of(parts(comparison))
    ]
    total = (time(comparison.a.latency_ns), time(comparison.b.latency_ns), change(comparison.change_ns), "")
    body = [
        _title(explained(comparison)),
        _table(("", "run", "what it is", "per step"), runs, names=3),
        *(f'<p style="{_SOFT}">{_text(note)}</p>' for note in comparison.notes),
        _table(("part of a step", "A", "B", "change", "of it"), [*rows, ("the step", *total)]),
    ]
    return {"text/plain": full(comparison, width=100, colour=False), "text/html": _whole(body)}


def _whole(parts: Iterable[str]) -> str:
    return f'<div style="max-width:62rem;line-height:1.45">{"".join(parts)}</div>'


def _title(text: str) -> str:
    return f'<p style="font-size:1.2em;font-weight:600;margin:.3em 0">{_text(text)}</p>'


def _where(analysis: Analysis) -> str:
    source = analysis.source
    return "".join(f" · {part}" for part in (source.device_name, source.precision, source.format) if part)


def _bounds(analysis: Analysis) -> str:
    shares = [(name, share) for name, share in analysis.bound.ranked() if share > 0]
    bar = "".join(f'<i style="flex:{share:.4f};background:{_COLOURS[name]}"></i>' for name, share in shares)
    legend = "".join(
        f'<span style="margin-right:1.2em"><b style="color:{_COLOURS[name]}">■</b> {name} {percent(share)}</span>'
        for name, share in shares
    )
    return f'<div style="display:flex;height:12px;gap:1px;margin:.5em 0">{bar}</div><div>{legend}</div>'


def _facts(analysis: Analysis) -> str:
    return f'<p style="margin:.6em 0">{"".join(_fact(each.label, each.value) for each in key_figures(analysis))}</p>'


def _fact(label: str, value: str) -> str:
    return f'<span style="margin-right:2em"><small style="{_SOFT}">{_text(label)}</small> <b>{_text(value)}</b></span>'


def _advice(advice: Recommendation, rank: int, opened: bool = False) -> str:
    number = f"{rank}. " if rank else ""
    lines = "".join(f"<li>{_text(line)}</li>" for line in (*lines_of(advice.evidence), *advice.caveats))
    code = (
        f'<pre style="white-space:pre-wrap"><code>{escape(printable_lines(advice.how_to))}</code></pre>'
        if advice.how_to
        else ""
    )
    summary = f"<summary>{number}<b>{_text(advice.title)}</b>: predicted {speedup(advice.speedup)}</summary>"
    body = f'<p style="margin:.3em 0">{_text(sentences(advice.reason))}</p>{code}<ul>{lines}</ul>'
    return f'<details{" open" if opened else ""} style="margin:.2em 0">{summary}{body}</details>'


def _times(frame: pd.DataFrame) -> str:
    longest = frame[frame.index.isin(frame["busy_ns"].nlargest(_ROWS).index) & (frame["busy_ns"] > 0)]
    rows = [
        (_nested(row), f"{row.calls:,}", duration(row.busy_ns / 1e3), percent(row.share), row.bound, row.own_bound)
        for row in rows_of(longest)
    ]
    return _table(("name", "calls", "time", "share", "bound", "own bound"), rows)


def _nested(row: Any) -> str:
    count = getattr(row, "count", 1)
    name = shortened(row.name.removeprefix("void "), _NAME)
    return (
        "\N{EM SPACE}" * getattr(row, "depth", 0)
        + name
        + (f" × {count}" if isinstance(count, int) and count > 1 else "")
    )


def _folded(title: str, body: str) -> str:
    return f'<details style="margin:.2em 0"><summary>{title}</summary>{body}</details>'


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1) -> str:
    """Return an HTML table; the first `names` columns are aligned left, the others right."""
    sides = ["left" if at < names else "right" for at in range(len(columns))]
    head = "".join(_cell(name, side, "th") for name, side in zip(columns, sides, strict=True))
    body = "".join(f"<tr>{''.join(map(_cell, row, sides))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str, side: str, tag: str = "td") -> str:
    return f'<{tag} style="text-align:{side};padding:.15em .6em">{_text(text)}</{tag}>'


def _text(text: str) -> str:
    """Return escaped text, isolated so that its direction does not affect the surrounding text."""
    return f"<bdi>{escape(printable(text))}</bdi>"
