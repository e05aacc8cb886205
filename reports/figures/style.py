"""Styles that the figures share: colours and symbols of bounds, and names escaped for Plotly."""

import html
from typing import Any

from tracekit.analyzers.roofline.bound_shares import BOUNDS
from tracekit.reports.names import printable, shortened

Figure = dict[str, Any]
"""`data` and `layout` of a Plotly figure."""

BOUND_NAMES = (*BOUNDS, "")
SYMBOLS = {
    "compute": "square",
    "memory": "circle",
    "launch": "triangle-up",
    "latency": "diamond",
    "transfer": "cross",
    "": "circle-open",
}

GLYPHS = {"compute": "■", "memory": "●", "launch": "▲", "latency": "◆", "transfer": "✚", "": "○"}
"""The symbols as characters."""


def colour(bound: str) -> str:
    return f"--{bound or 'unknown'}"


def cause_colour(cause: str) -> str:
    """Return the colour of idle time with this cause."""
    return f"--gap-{cause}" if cause else "--unknown"


def bound_title(bound: str) -> str:
    return bound or "unknown"


def text(name: str, limit: int = 80) -> str:
    """Return `name` escaped, in at most `limit` characters: Plotly interprets HTML in labels."""
    return html.escape(shortened(printable(name).removeprefix("void "), limit), quote=False)


def logarithmic(title: str) -> dict[str, Any]:
    return {"title": {"text": title}, "type": "log", "tickformat": ",~r", "dtick": 1}
