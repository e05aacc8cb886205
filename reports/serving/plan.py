"""A serving plan as text, as CSV and as a page."""

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.analyzers.serving import SERVE_PLAN
from tracekit.reports.words import (
    ABSENT,
    asset,
    csv_cell,
    duration,
    environment,
    paragraph,
    percent,
    printable,
    printed,
    significant,
)

MODELLED = "MODELLED: passes are predicted, and the engine is simulated; nothing was measured."
HEAD = ("engine", "tokens/s", "first token p50", "p99", "between p50", "p99", "KV mean", "max", "in flight", "put off")
_WIDTH, _HEIGHT, _LEFT, _BASE = 300, 120, 40, 100


def to_text(table: pd.DataFrame, title: str, *, width: int | None = None) -> str:
    """Return the table, and the reasons why some engines cannot serve the requests."""
    return printed(lambda columns: _text(table, title, columns), width=width, colour=False)


def to_csv(table: pd.DataFrame) -> str:
    """Return SERVE_PLAN with a header row."""
    safe = table.assign(**{name: table[name].map(csv_cell) for name in ("engine", "problem")})
    return safe.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def to_html(table: pd.DataFrame, over_time: Mapping[str, pd.DataFrame], title: str) -> str:
    """Return one self-contained page."""
    values: dict[str, Any] = {
        "title": printable(title),
        "modelled": MODELLED,
        "head": HEAD,
        "meanings": [(column.name, column.meaning) for column in SERVE_PLAN.columns],
        "rows": [_cells(row) for row in table.to_dict("records")],
        "remarks": _remarks(table),
        "panels": [{"title": printable(name), "svg": _panel(run)} for name, run in over_time.items() if len(run)],
        "style": asset("tokens.css") + asset("bench.css") + asset("sweep.css"),
    }
    return environment().get_template("serve_plan.html.j2").render(**values)


def _text(table: pd.DataFrame, title: str, width: int) -> RenderableType:
    view = Table(box=SIMPLE_HEAD, pad_edge=False)
    for rank, name in enumerate(HEAD):
        view.add_column(name, justify="right" if rank else "left", overflow="fold")
    for row in table.to_dict("records"):
        view.add_row(*_cells(row))
    remarks = [paragraph(line, width) for line in _remarks(table)]
    return Group(Text(printable(title)), view, *remarks, Text(MODELLED))


def _cells(row: Mapping[Any, Any]) -> list[str]:
    if row["problem"]:
        return [printable(row["engine"]), *[ABSENT] * (len(HEAD) - 1)]
    times = (row[f"{name}_{part}_s"] for name in ("ttft", "tbt") for part in ("p50", "p99"))
    return [
        printable(row["engine"]),
        significant(row["tokens_per_s"]),
        *(duration(1e6 * each) if each == each else ABSENT for each in times),
        percent(row["kv_mean"]),
        percent(row["kv_max"]),
        f"{row['running_max']:,}",
        f"{row['put_off']:,}",
    ]


def _remarks(table: pd.DataFrame) -> list[str]:
    pairs = zip(table["engine"].astype(str), table["problem"].astype(str), strict=True)
    lines = [f"{printable(name)}: {printable(problem)}" for name, problem in pairs if problem]
    refused = int(table["refused"].clip(lower=0).max()) if len(table) else 0
    return [*lines, *([f"{refused:,} requests need more than the whole KV cache."] if refused else [])]


def _panel(run: pd.DataFrame) -> str:
    """Return a panel of KV cache use and waiting requests over time, each with its own scale."""
    end, most = max(float(run["time_s"].iloc[-1]), 1e-9), max(int(run["waiting"].max()), 1)
    full = max(float(run["kv"].max()), 1e-9)
    lines = [
        f'<polyline class="{line}" points="{_points(run["time_s"] / end, values)}"/>'
        for line, values in (("line-1", run["kv"] / full), ("line-2", run["waiting"] / most))
    ]
    axes = (
        f'<path class="axis" d="M{_LEFT} 8V{_BASE}H{_WIDTH}"/>'
        f'<text class="label" x="{_LEFT - 4}" y="14">{escape(percent(full))}</text>'
        f'<text class="label" x="{_WIDTH}" y="{_BASE + 12}">{duration(1e6 * end)}</text>'
        f'<text x="{_LEFT + 6}" y="14">KV cache (blue), up to {most:,} waiting (red)</text>'
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="KV cache over time">{"".join(lines)}{axes}</svg>'
    )


def _points(x: Any, y: Any) -> str:
    step = max(1, len(x) // 300)
    pairs = zip(x[::step], y[::step], strict=True)
    return " ".join(f"{_LEFT + (_WIDTH - _LEFT) * a:.1f},{_BASE - (_BASE - 24) * b:.1f}" for a, b in pairs)
