"""Recommendations as cards: what they give, why, how, what they cost, and when they hurt."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from analyzers.interval import Interval
from analyzers.results import Analysis, Recommendation
from reports.facts import Fact
from reports.measured_gains import MeasuredGain, measured_gains, of_advice
from reports.names import middle_truncated, printable

_SHORTEST, _LONGEST = 4, 400
_PHRASES = {r"\d[\d,]* kernels": "kernels-0", r"idle \d+ %": "timeline"}
"""What evidence says of many rows, and where they are."""
_LINKED = {"layer_types": "type", "ops": "name", "kernels": "name"}
"""Tables whose rows evidence can name, and the column with the name."""


@dataclass(frozen=True)
class Piece:
    """A part of a sentence; `href` is the row that it names, or ""."""

    text: str
    href: str = ""


@dataclass(frozen=True)
class Card:
    id: str
    title: str
    speedup: Interval
    reason: str
    explained: str
    evidence: tuple[tuple[Piece, ...], ...]
    how_to: str
    costs: tuple[Fact, ...]
    caveats: tuple[str, ...]
    gain: MeasuredGain | None
    """What was measured of it; None: nothing was."""


def cards(analysis: Analysis) -> list[Card]:
    rows, gains = _rows(analysis), measured_gains(analysis)
    return [_card(advice, rows, of_advice(gains, advice.id)) for advice in analysis.recommendations]


def _card(advice: Recommendation, rows: Mapping[str, str], gain: MeasuredGain | None) -> Card:
    return Card(
        id=advice.id,
        title=printable(advice.title),
        speedup=advice.speedup,
        reason=printable(advice.reason),
        explained=printable(advice.explained),
        evidence=tuple(_linked(middle_truncated(printable(line), _LONGEST), rows) for line in advice.evidence),
        how_to=advice.how_to,
        costs=tuple(_costs_of(advice.id, gain)),
        caveats=tuple(printable(line) for line in advice.caveats),
        gain=gain,
    )


def _costs_of(optimization: str, gain: MeasuredGain | None) -> Iterator[Fact]:
    """As it is known of every run, and as it was measured in this one."""
    measured = {"memory": gain.memory, "accuracy": gain.difference} if gain else {}
    for what, said in _costs().get(optimization, {}).items():
        yield Fact(what, measured.get(what) or said, "measured" if measured.get(what) else "")


@cache
def _costs() -> dict[str, dict[str, str]]:
    return tomllib.loads((files("reports") / "card_costs.toml").read_text("utf-8"))


def _rows(analysis: Analysis) -> dict[str, str]:
    """Names of layer types, ops and kernels, and the row of each; of equal names, that of the first table."""
    found: dict[str, str] = {}
    for table, column in _LINKED.items():
        for row, name in enumerate(getattr(analysis, table)[column]):
            found.setdefault(printable(str(name)), f"{table}-{row}")
    return {name: href for name, href in found.items() if len(name) >= _SHORTEST}


def _linked(line: str, rows: Mapping[str, str]) -> tuple[Piece, ...]:
    names = sorted((name for name in rows if name in line), key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w.:])({'|'.join([*map(re.escape, names), *_PHRASES])})(?!\w)")
    parts = enumerate(pattern.split(line))
    return tuple(Piece(part, _place(part, rows) if at % 2 else "") for at, part in parts if part)


def _place(part: str, rows: Mapping[str, str]) -> str:
    return rows.get(part) or next(place for phrase, place in _PHRASES.items() if re.fullmatch(phrase, part))
