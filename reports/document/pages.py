"""Writes a document, or what has a template of its own, as a page that needs no other file and no network."""

import base64
import gzip
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2

from tracekit.reports.document.blocks import Document, Section
from tracekit.reports.words import in_sentence, numbers, printable, printable_lines, shortened, why

_LONGEST_NAME = 72


@cache
def asset(name: str) -> str:
    """Return the text of a file in reports/assets."""
    return (files("tracekit.reports") / "assets" / name).read_text("utf-8")


@cache
def plotly_source() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


@cache
def packed_plotly() -> str:
    return packed(plotly_source())


def packed(text: str) -> str:
    """Return `text` as base64 of gzip, without a time stamp: equal texts give equal results."""
    return base64.b64encode(gzip.compress(text.encode("utf-8"), 9, mtime=0)).decode("ascii")


def packed_json(value: Any) -> str:
    """Return `value` as JSON, packed."""
    return packed(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def page(
    template: str,
    title: str,
    /,
    *,
    kind: str = "",
    mark: str = "",
    styles: tuple[str, ...] = (),
    scripts: tuple[str, ...] = ("dom", "page"),
    inline: tuple[str, ...] = (),
    **values: Any,
) -> str:
    """Return the page of `template`, which needs no other file and no network.

    `kind` is what the page says it is, by default the name of the template, and `mark` identifies its input. `styles`
    stand beside those of all pages. The page runs `scripts` and what of `inline` it unpacks, and nothing else.
    """
    theme, script = asset("theme.js"), "\n".join(asset(f"{each}.js") for each in scripts)
    return environment().get_template(f"{template}.html.j2").render(
        kind=kind or template,
        title=title,
        mark=mark,
        theme_script=theme,
        script=script,
        policy=content_security_policy(theme, script, *inline),
        style="\n".join(asset(f"{each}.css") for each in ("tokens", "page", "tables", *styles, "paper")),
        **values,
    )  # fmt: skip


def document_page(document: Document, mark: str = "") -> str:
    """Return the page of a document. Texts are escaped."""
    sections = [each for each in document.blocks if isinstance(each, Section)]
    opening = [each for each in document.blocks if not isinstance(each, Section)]
    return page(
        "document",
        printable(document.title),
        kind=document.kind,
        mark=mark,
        styles=document.styles,
        opening=opening,
        sections=sections,
    )


def _shown_as(block: Any) -> str:
    """Return the name of the macro that shows a block or a cell."""
    return type(block).__name__.lower()


def content_security_policy(*scripts: str) -> str:
    """Return a policy that allows exactly these scripts and no network. Plotly needs inline styles."""
    hashes = " ".join(_source_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _source_hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode('utf-8')).digest()).decode('ascii')}'"


def _position_along(speedup: float, scale: float) -> float:
    """Return the position of a speed-up on the axis from 1 to `scale`, as a fraction."""
    return round(min(max((speedup - 1) / (scale - 1), 0.0), 1.0), 4) if scale > 1 else 0.0


def _printable_value(value: Any) -> Any:
    """Replace control characters in a text; markup is unchanged."""
    return printable_lines(value) if type(value) is str else value


@cache
def environment() -> jinja2.Environment:
    """Return the Jinja environment, in which every value is escaped and made printable. It compiles a template once."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tracekit.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable_value,
    )
    filters: dict[str, Any] = {
        "percent": numbers.percent,
        "speedup": numbers.speedup,
        "times": numbers.times,
        "measured": numbers.measured,
        "duration": numbers.duration,
        "size": lambda value: numbers.quantity(value, "B"),
        "printable": printable,
        "in_sentence": in_sentence,
        "why": why,
        "along": _position_along,
        "shown_as": _shown_as,
        "shortened": lambda name: shortened(printable(name), _LONGEST_NAME),
        "unbroken": lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%"),
    }
    environment.filters.update(filters)
    return environment
