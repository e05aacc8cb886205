"""The panels of a bench as one SVG figure, for papers and slides."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tracekit.reports.bench_panels import Panel, panels
from tracekit.reports.bench_report import grouped
from tracekit.reports.names import printable

_WIDTH, _GAP, _HEAD, _TITLE = 460, 36, 34, 24
_BOX = re.compile(r'viewBox="0 0 (\d+) (\d+)"')
_STYLE = """text { font: 11.5px "Helvetica Neue", Arial, sans-serif; fill: #15181c; dominant-baseline: middle; }
.head { font-size: 15px; } .title { fill: #565d66; font-size: 12.5px; } .label, .value { text-anchor: end; }
.label { fill: #565d66; } rect, circle { fill: #1565a8; } .paper { fill: #ffffff; }
.one { stroke: #858d97; stroke-dasharray: 3 3; } .range { stroke: #b8400e; fill: #b8400e; stroke-width: 2; }
.axis { stroke: #dfe3e8; fill: none; }"""


def figure(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the panels of each run in two columns, with the runs below each other."""
    y, parts = 0, list[str]()
    for title, group in grouped(rows).items():
        parts.append(f'<text class="head" x="{_GAP}" y="{y + _HEAD / 2 + 6}">{escape(printable(title))}</text>')
        drawn = panels(group)
        y += _HEAD
        for pair in (drawn[start : start + 2] for start in range(0, len(drawn), 2)):
            placed = [_placed(panel, _GAP + column * (_WIDTH + _GAP), y) for column, panel in enumerate(pair)]
            parts += [text for text, _ in placed]
            y += _TITLE + max(height for _, height in placed) + _GAP // 2
    width = 2 * _WIDTH + 3 * _GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}">'
    paper = f'<rect class="paper" width="{width}" height="{y}"/>'
    return f"{head}<style>{_STYLE}</style>{paper}{''.join(parts)}</svg>\n"


def _placed(panel: Panel, x: int, y: int) -> tuple[str, int]:
    """Return the panel at a place, and its height."""
    box = _BOX.search(panel.svg)
    assert box
    width, height = map(int, box.groups())
    inner = panel.svg.replace("<svg ", f'<svg x="{x}" y="{y + _TITLE}" width="{width}" height="{height}" ', 1)
    return f'<text class="title" x="{x}" y="{y + _TITLE / 2}">{escape(panel.title)}</text>{inner}', height
