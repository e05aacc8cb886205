"""The rows of a bench as a document, and as one figure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from tracekit.analyzers.core import Interval
from tracekit.analyzers.results import say
from tracekit.reports.document import Block, Document, Drawn, Listing, Section, Table, Text
from tracekit.reports.measure.bench_panels import Panel, panels
from tracekit.reports.words import (
    ABSENT,
    changed,
    duration,
    percent,
    printable,
    quantity,
    sentence,
    significant,
    speedup,
    times,
)

Row = Mapping[str, Any]

_RUN = ("model", "workload", "batch_size", "seq_len", "new_tokens", "weights")
_SPEED = {
    "step": lambda row: _spread(row),
    "per second": lambda row: _rate(row),
    "predicted": lambda row: _predicted(row),
    "speed-up": lambda row: times(row["speedup"], row["speedup"]) if row["speedup"] else ABSENT,
    "1st token": lambda row: _time(row["time_to_first_token_us"]),
    "per token": lambda row: _time(row["time_between_tokens_us"]),
}
_COST = {
    "memory": lambda row: quantity(row["peak_memory_bytes"], "B") if row["peak_memory_bytes"] else ABSENT,
    "GPU": lambda row: _share(row["gpu_utilization"]),
    "largest batch": lambda row: largest_batch(row["largest_batch"], row["predicted_largest_batch"]),
    "off by": lambda row: _difference(row["relative_difference"]),
    "same": lambda row: _share(row["agreement"]),
    "perplexity": lambda row: significant(row["perplexity"]) if row["perplexity"] else ABSENT,
    "score": lambda row: ABSENT if row["score"] is None else significant(row["score"]),
    "change": lambda row: _change(row),
    "same on text": lambda row: _share(row["text_agreement"]),
    "KL on text": lambda row: ABSENT if row["text_kl"] is None else significant(row["text_kl"]),
}


def bench_document(rows: Sequence[Row]) -> Document:
    """Return two tables and up to four panels for each run, failures and caveats."""
    runs = [Section(title, [*_tables(group), *_drawn(panels(group))]) for title, group in grouped(rows).items()]
    legend, known = Text(sentence(say("bench-legend")), "soft"), remarks(rows)
    more = [Section("What to know", [Listing(known)])] if known else []
    return Document("Configurations beside each other", [*runs, legend, *more], "bench", ("bench",))


def _drawn(drawn: Sequence[Panel]) -> list[Block]:
    return [Drawn("figures", {"kind": "panels", "figures": drawn})] if drawn else []


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each run by the run's title."""
    runs: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        runs.setdefault(tuple(row[name] for name in _RUN), []).append(row)
    return {_title(group): group for group in runs.values()}


def remarks(rows: Sequence[Row]) -> list[str]:
    """Return failures, caveats, and the note on random weights where it applies."""
    failed = [f"{row['config']} ({row['model']}): not measured. {row['error']}" for row in rows if row["error"]]
    caveats = [f"{row['config']} ({row['model']}): {row['caveats']}" for row in rows if row["caveats"]]
    general = [sentence(say("random-weights-drift"))] if any(row["weights"] == "random" for row in rows) else []
    return [*failed, *caveats, *general]


def _title(group: Sequence[Row]) -> str:
    row = group[0]
    length = f", {row['seq_len']} tokens" if row["seq_len"] else ""
    made = f" + {row['new_tokens']}" if row["new_tokens"] else ""
    where = next((f", on {each['device']}" for each in group if each["device"]), "")
    return f"{row['model']}, {row['workload']}, batch {row['batch_size']}{length}{made}{where}"


def _tables(group: Sequence[Row]) -> Iterator[Table]:
    """Yield the tables of speed and of costs, with the columns that hold a value for at least one row."""
    for columns in (_SPEED, _COST):
        cells = {name: [cell(row) for row in group] for name, cell in columns.items()}
        known = {f">{name}": values for name, values in cells.items() if set(values) != {ABSENT}}
        names = [row["config"] for row in group]
        if known:
            yield Table(("configuration", *known), list(zip(names, *known.values(), strict=True)))


def _spread(row: Row) -> str:
    if not row["latency_us"]:
        return ABSENT
    apart = (row["latency_p90_us"] - row["latency_p10_us"]) / 2 / row["latency_us"]
    return f"{duration(row['latency_us'])} ±{percent(apart)}"


def _rate(row: Row) -> str:
    return f"{significant(row['items_per_s'])} {row['unit']}" if row["items_per_s"] else ABSENT


def _predicted(row: Row) -> str:
    if row["predicted"] is None:
        return ABSENT
    return speedup(Interval(row["predicted_low"], row["predicted"], row["predicted_high"]))


def _time(value: float | None) -> str:
    return duration(value) if value else ABSENT


def largest_batch(measured: int | None, predicted: int | None) -> str:
    """Return the largest batch that was measured, followed by the predicted one if there is one."""
    if not measured:
        return ABSENT
    return f"{measured:,} (predicted {predicted:,})" if predicted else f"{measured:,}"


def _change(row: Row) -> str:
    if row["change"] is None or row["config"] == row["first"]:
        return ABSENT
    return changed(Interval(row["change_low"], row["change"], row["change_high"]))


def _share(value: float | None) -> str:
    return ABSENT if value is None else percent(value)


def _difference(value: float | None) -> str:
    if value is None:
        return ABSENT
    return f"{significant(100 * value)} %" if value >= 1e-6 else "0"


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
