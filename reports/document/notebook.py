"""Writes a document as HTML for a notebook, without scripts or addresses.

Colours are the notebook's own, except those of the bounds.
"""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from tracekit.reports.document.blocks import (
    Block,
    Cell,
    Code,
    Document,
    Facts,
    Listing,
    Name,
    Section,
    Shares,
    Table,
    Text,
)
from tracekit.reports.words import percent, printable, printable_lines, shortened

_COLOURS = {
    "compute": "#d9622b",
    "memory": "#2f7fd0",
    "launch": "#c99a1a",
    "latency": "#c06fa0",
    "transfer": "#1f9a78",
    "unknown": "#88909a",
}
_LONGEST_NAME = 70
_SOFT = "opacity:.7"


def notebook(document: Document) -> str:
    """Return the document; what a page shows alone is left out."""
    return f'<div style="max-width:62rem;line-height:1.45">{_parts(document.blocks)}</div>'


def _parts(blocks: Sequence[Block]) -> str:
    return "".join(_WRITERS[type(each)](each) for each in blocks if type(each) in _WRITERS)


def _text(text: Text) -> str:
    looks = "font-size:1.2em;font-weight:600;margin:.3em 0" if "headline" in text.mark.split() else "margin:.3em 0"
    return f'<p style="{f"{_SOFT};" if text.mark in ("soft", "doubtful") else ""}{looks}">{_isolated(text.text)}</p>'


def _listing(listing: Listing) -> str:
    return f"<ul>{''.join(f'<li>{_isolated(line)}</li>' for line in listing.lines)}</ul>"


def _facts(facts: Facts) -> str:
    return f'<p style="margin:.6em 0">{"".join(_fact(label, value) for label, value in facts.rows)}</p>'


def _fact(label: str, value: str) -> str:
    label, value = f'<small style="{_SOFT}">{_isolated(label)}</small>', f"<b>{_isolated(value)}</b>"
    return f'<span style="margin-right:2em">{label} {value}</span>'


def _shares(shares: Shares) -> str:
    bar = "".join(f'<i style="flex:{share:.4f};background:{_COLOURS[name]}"></i>' for name, share in shares.rows)
    legend = "".join(
        f'<span style="margin-right:1.2em"><b style="color:{_COLOURS[name]}">■</b> {name} {percent(share)}</span>'
        for name, share in shares.rows
    )
    return f'<div style="display:flex;height:12px;gap:1px;margin:.5em 0">{bar}</div><div>{legend}</div>'


def _code(code: Code) -> str:
    return f'<pre style="white-space:pre-wrap"><code>{escape(printable_lines(code.text))}</code></pre>'


def _section(section: Section) -> str:
    summary = f"<summary>{_isolated(section.title)}</summary>"
    opened = "" if section.folded else " open"
    return f'<details{opened} style="margin:.2em 0">{summary}{_parts(section.blocks)}</details>'


def _table(table: Table) -> str:
    sides = ["right" if label.startswith(">") else "left" for label in table.columns]
    labels = [label.removeprefix(">") for label in table.columns]
    head = "".join(_cell(label, side, "th") for label, side in zip(labels, sides, strict=True))
    body = "".join(f"<tr>{''.join(map(_cell, row, sides))}</tr>" for row in table.rows[: table.first])
    more = f"<p>{table.left_out}</p>" if table.left_out else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(cell: str | Cell | Name, side: str, tag: str = "td") -> str:
    text = _name(cell) if isinstance(cell, Name) else cell if isinstance(cell, str) else cell.text
    return f'<{tag} style="text-align:{side};padding:.15em .6em">{_isolated(text)}</{tag}>'


def _name(name: Name) -> str:
    count = f" × {name.count}" if name.count > 1 else ""
    return "\N{EM SPACE}" * name.depth + shortened(name.text, _LONGEST_NAME) + count


def _isolated(text: str) -> str:
    """Return escaped text, isolated so that its direction does not affect the surrounding text."""
    return f"<bdi>{escape(printable(text))}</bdi>"


_WRITERS: dict[type, Callable[[Any], str]] = {
    Text: _text,
    Listing: _listing,
    Facts: _facts,
    Shares: _shares,
    Code: _code,
    Section: _section,
    Table: _table,
}
