"""Writes a document as Markdown, for a comment on GitHub."""

import re
from collections.abc import Callable, Iterable, Sequence
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
from tracekit.reports.words import percent, printable, shortened

_MARKED = {"headline": "**{}**", "strong": "**{}**", "doubtful": "> {}", "bad": "- {}"}


def markdown(document: Document) -> str:
    """Return the document; what a page shows alone is left out."""
    return "\n\n".join([*_parts(document.blocks), ""])


def _parts(blocks: Sequence[Block]) -> list[str]:
    return [part for each in blocks if type(each) in _WRITERS and (part := _WRITERS[type(each)](each))]


def _text(text: Text) -> str:
    escaped = prose(text.text)
    return _MARKED.get(text.mark, "{}").format(escaped)


def _listing(listing: Listing) -> str:
    return "\n".join(f"- {inline(line)}" for line in listing.lines)


def _facts(facts: Facts) -> str:
    return _grid([f">{label}" for label, _ in facts.rows], [[inline(text) for _, text in facts.rows]])


def _shares(shares: Shares) -> str:
    rows = [(name, f"`{bar(share)}`", inline(percent(share))) for name, share in shares.rows if round(share, 4) > 0]
    return _grid(("bound by", "", ">of the step"), rows)


def _code(code: Code) -> str:
    return block(code.text, "" if code.text.startswith("tracekit ") else "python")


def _section(section: Section) -> str:
    body = "\n\n".join(_parts(section.blocks))
    return folded(section.title, body) if section.folded and body else body


def _table(table: Table) -> str:
    rows, more = table.rows[: table.first], f"\n\n{table.left_out}" if table.left_out else ""
    return _grid(table.columns, [[_cell(cell) for cell in row] for row in rows]) + more if rows else ""


def _cell(cell: str | Cell | Name) -> str:
    if isinstance(cell, Name):
        return "&emsp;" * cell.depth + code(cell.text) + (f" × {cell.count}" if cell.count > 1 else "")
    text = inline(cell if isinstance(cell, str) else cell.text)
    return f"**{text}**" if text and isinstance(cell, Cell) and cell.mark == "strong" else text


def _grid(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---:" if name.startswith(">") else ":---" for name in columns]
    names = [inline(name.removeprefix(">")) for name in columns]
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, rule, *rows))


_WRITERS: dict[type, Callable[[Any], str]] = {
    Text: _text,
    Listing: _listing,
    Facts: _facts,
    Section: _section,
    Shares: _shares,
    Code: _code,
    Table: _table,
}

_SPECIAL = re.compile(r"[\\`*_\[\]|~$]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LINKING = re.compile(r"@|#(?=\d)|(?<=:)//|(?<=www)\.|\bGH-(?=\d)", re.IGNORECASE)
_NAME = 60
_BAR = 20


def prose(text: str) -> str:
    """Return `text` escaped, in one line, so that it begins neither a list nor a heading."""
    escaped = inline(text)
    return f"\\{escaped}" if escaped[:1] in ("#", "+", "-") and escaped else escaped


def inline(text: str) -> str:
    """Return `text` escaped, to stand behind other text. Empty comments prevent links and mentions."""
    escaped = "".join(_ENTITIES.get(character, character) for character in printable(text))
    escaped = _SPECIAL.sub(lambda match: f"\\{match[0]}", escaped)
    return _LINKING.sub(lambda match: f"<!-- -->{match[0]}<!-- -->", escaped)


def code(name: str, limit: int = _NAME) -> str:
    """Return `name` as a code span of at most `limit` characters, with "|" escaped as tables need it."""
    text = shortened(printable(name), limit)
    if not text:
        return ""
    fence = "`" * (_longest_run(text) + 1)
    space = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|")


def block(text: str, language: str = "") -> str:
    """Return a code block, with a fence that is longer than any run of backticks in `text`."""
    fence = "`" * max(3, _longest_run(text) + 1)
    lines = "\n".join(printable(line) for line in text.splitlines())
    return f"{fence}{language}\n{lines}\n{fence}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Cells are Markdown; a column whose name begins with ">" is aligned right."""
    rule = ["---:" if name.startswith(">") else ":---" for name in columns]
    names = [name.removeprefix(">") for name in columns]
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, rule, *rows))


def folded(summary: str, body: str) -> str:
    """Return a folded section. `summary` is plain text, `body` is Markdown."""
    return f"<details>\n<summary>{prose(summary)}</summary>\n\n{body}\n\n</details>"


def bar(share: float) -> str:
    """Return a bar of twenty characters; a share above 0 fills at least one."""
    filled = min(_BAR, max(int(share > 0), round(share * _BAR)))
    return "█" * filled + "░" * (_BAR - filled)


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
