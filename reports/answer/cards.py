"""Recommendations as cards: gain, reason, instructions, costs, and caveats."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from tracekit.analyzers.core import Interval
from tracekit.analyzers.results import Analysis, Costs, Evidence, PlanStep, Recommendation, Statement, Statements
from tracekit.reports.answer.facts import Fact
from tracekit.reports.answer.measured import MeasuredGain, measured_gains, of_advice, of_steps
from tracekit.reports.words import explained, lower_first, pieces, printable

Rows = Mapping[tuple[str, str], str]
_KEYS = {"layer_types": "type", "ops": "name", "kernels": "name", "idle_causes": "cause", "fusion_plan": "number"}
"""Tables whose rows evidence refers to, with the columns of their keys."""
_PLACES = {"idle_share": "timeline", "launches": "kernels-0"}
"""Values of the step, with the element of the page that shows them."""


class Link(NamedTuple):
    """A part of a sentence; `href` is the row that it names, or ""."""

    text: str
    href: str


@dataclass(frozen=True)
class Card:
    id: str
    applied: str
    """Optimizations of this card and of the plan's earlier steps, joined with +."""
    title: str
    speedup: Interval
    """Speed-up of this optimization alone; in a plan, relative to the earlier steps."""
    together: Interval | None
    """Speed-up of this step and all earlier ones in the plan; None: the card is not part of a plan."""
    throughput: bool
    condition: str
    """A requirement that the run does not meet; "" for none."""
    reason: tuple[Link, ...]
    explained: str
    evidence: tuple[tuple[Link, ...], ...]
    how_to: str
    costs: tuple[Fact, ...]
    caveats: tuple[str, ...]
    gain: MeasuredGain | None
    """Its measured gain alone; None if it was not measured."""
    gain_together: MeasuredGain | None = None
    """Measured gain of this step and all earlier ones in the plan."""


def cards(analysis: Analysis) -> tuple[list[Card], list[Card]]:
    """Return the cards of the plan in its order, and the cards of the other recommendations. Without a plan, the first
    list holds all."""
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


def _alone(advice: Recommendation, rows: Rows, gain: MeasuredGain | None) -> Card:
    return Card(
        id=advice.id,
        applied=advice.id,
        title=printable(advice.title),
        speedup=advice.speedup,
        together=None,
        throughput=advice.throughput,
        condition=advice.condition,
        reason=_paragraph(advice.reason, rows),
        explained=explained(advice.explained),
        evidence=tuple(_linked(line, rows) for line in advice.evidence),
        how_to=advice.how_to,
        costs=tuple(_costs_of(advice.costs, gain)),
        caveats=tuple(printable(line) for line in advice.caveats),
        gain=gain,
    )


def _in_plan(step: PlanStep, alone: Card | None, gain: MeasuredGain | None, before: tuple[PlanStep, ...]) -> Card:
    explanation = explained(step.explained)
    return Card(
        id=_id(step),
        applied="+".join([*(each.name for each in before), step.name]),
        title=printable(step.title),
        speedup=step.speedup,
        together=step.cumulative,
        throughput=step.throughput,
        condition=step.condition,
        reason=alone.reason if alone else (),
        explained=f"With all before it, {lower_first(explanation)}" if before else explanation,
        evidence=alone.evidence if alone else (),
        how_to=step.how_to,
        costs=tuple(_costs_of(step.costs, gain)),
        caveats=tuple(printable(line) for line in step.caveats),
        gain=gain,
    )


def _costs_of(costs: Costs | None, gain: MeasuredGain | None) -> Iterator[Fact]:
    """Return the costs of an optimization in general, and the costs measured in this run."""
    measured = {"memory": gain.memory, "accuracy": gain.difference} if gain else {}
    for what, text in (asdict(costs) if costs else {}).items():
        yield Fact(what, measured.get(what) or text, "measured" if measured.get(what) else "")


def _rows(analysis: Analysis) -> dict[tuple[str, str], str]:
    """Return the anchor of each row by its table and key. Rows with equal keys share the anchor of the first."""
    anchors: dict[tuple[str, str], str] = {}
    for table, column in _KEYS.items():
        for row, key in enumerate(getattr(analysis, table)[column]):
            anchors.setdefault((table, str(key)), f"{table}-{row}")
    return anchors


def _paragraph(statements: Statements, rows: Rows) -> tuple[Link, ...]:
    """Return the joined sentences of the statements."""
    parts = [(Link(" ", ""), *_linked(statement, rows)) for statement in statements]
    return tuple(link for part in parts for link in part)[1:]


def _linked(statement: Statement, rows: Rows) -> tuple[Link, ...]:
    return tuple(Link(piece.text, _place(piece.evidence, rows)) for piece in pieces(statement))


def _place(evidence: Evidence | None, rows: Rows) -> str:
    if evidence is None:
        return ""
    if evidence.table == "step":
        return _PLACES.get(evidence.column, "")
    return rows.get((evidence.table, evidence.row), "")
