"""Recommendations as cards: what they give, why, how, what they cost, and when they hurt."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.values import PlanStep, Recommendation
from tracekit.analyzers.results import Analysis
from tracekit.reports.facts import Fact
from tracekit.reports.measured_gains import MeasuredGain, measured_gains, of_advice, of_steps
from tracekit.reports.names import lower_first, middle_truncated, printable

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
    applied: str
    """With what stands before it in the plan, joined with +."""
    title: str
    speedup: Interval
    """Of it alone; in a plan, of what it adds to the steps before it."""
    together: Interval | None
    """In a plan, of it and all before it; None: it stands by itself."""
    throughput: bool
    reason: str
    explained: str
    evidence: tuple[tuple[Piece, ...], ...]
    how_to: str
    costs: tuple[Fact, ...]
    caveats: tuple[str, ...]
    gain: MeasuredGain | None
    """What was measured of it by itself; None: nothing was."""
    gain_together: MeasuredGain | None = None
    """And of it and all before it in the plan."""


def cards(analysis: Analysis) -> tuple[list[Card], list[Card]]:
    """Those of the plan, in its order, and those of the other recommendations; without a plan all are the first."""
    rows, gains = _rows(analysis), measured_gains(analysis)
    alone = {advice.id: _alone(advice, rows, of_advice(gains, advice.id)) for advice in analysis.recommendations}
    if not analysis.plan:
        return list(alone.values()), []
    steps = [
        replace(
            _in_plan(step, alone.pop(_id(step), None), of_advice(gains, _id(step)), analysis.plan[:at]),
            gain_together=of_steps(gains, [each.name for each in analysis.plan[: at + 1]]) if at else None,
        )
        for at, step in enumerate(analysis.plan)
    ]
    return steps, list(alone.values())


def _id(step: PlanStep) -> str:
    return step.name.split(":")[0]


def _alone(advice: Recommendation, rows: Mapping[str, str], gain: MeasuredGain | None) -> Card:
    return Card(
        id=advice.id,
        applied=advice.id,
        title=printable(advice.title),
        speedup=advice.speedup,
        together=None,
        throughput=False,
        reason=printable(advice.reason),
        explained=printable(advice.explained),
        evidence=tuple(_linked(middle_truncated(printable(line), _LONGEST), rows) for line in advice.evidence),
        how_to=advice.how_to,
        costs=tuple(_costs_of(advice.id, gain)),
        caveats=tuple(printable(line) for line in advice.caveats),
        gain=gain,
    )


def _in_plan(step: PlanStep, alone: Card | None, gain: MeasuredGain | None, before: tuple[PlanStep, ...]) -> Card:
    explained = printable(step.explained)
    return Card(
        id=_id(step),
        applied="+".join([*(each.name for each in before), step.name]),
        title=printable(step.title),
        speedup=step.speedup,
        together=step.cumulative,
        throughput=step.throughput,
        reason=alone.reason if alone else "",
        explained=f"With all before it, {lower_first(explained)}" if before and explained else explained,
        evidence=alone.evidence if alone else (),
        how_to=step.how_to,
        costs=tuple(_costs_of(_id(step), gain)),
        caveats=tuple(printable(line) for line in step.caveats),
        gain=gain,
    )


def _costs_of(optimization: str, gain: MeasuredGain | None) -> Iterator[Fact]:
    """As it is known of every run, and as it was measured in this one."""
    measured = {"memory": gain.memory, "accuracy": gain.difference} if gain else {}
    for what, said in _costs().get(optimization, {}).items():
        yield Fact(what, measured.get(what) or said, "measured" if measured.get(what) else "")


@cache
def _costs() -> dict[str, dict[str, str]]:
    return tomllib.loads((files("tracekit.reports") / "card_costs.toml").read_text("utf-8"))


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
