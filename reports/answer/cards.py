"""Recommendations as cards: gain, reason, instructions, costs, and caveats."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from msgspec.structs import asdict

from tracekit.analyzers.core import Interval
from tracekit.analyzers.results import Analysis, Costs, Evidence, PlanStep, Recommendation, Statement, Statements
from tracekit.reports.answer.facts import Fact
from tracekit.reports.answer.measured import MeasuredGain, measured_gains, of_advice, of_steps
from tracekit.reports.answer.plans import planned, unprofiled
from tracekit.reports.words import explained, pieces

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
    """A recommendation by itself, or a step of the plan, in the words of the page."""

    advice: Recommendation
    applied: str
    """Optimizations of this card and of the plan's earlier steps, joined with +."""
    reason: tuple[Link, ...]
    explained: str
    evidence: tuple[tuple[Link, ...], ...]
    costs: tuple[Fact, ...]
    gain: MeasuredGain | None
    """Its measured gain alone; None if it was not measured."""
    gain_together: MeasuredGain | None
    """Measured gain of this step and all earlier ones in the plan."""

    @property
    def together(self) -> Interval | None:
        """Speed-up of this step and all earlier ones in the plan; None: the card is not part of a plan."""
        return self.advice.cumulative if isinstance(self.advice, PlanStep) else None


def cards(analysis: Analysis) -> tuple[list[Card], list[Card]]:
    """Return the cards of the plan in its order, and the cards of the other recommendations. Without a plan, the first
    list holds all."""
    alone = {advice.id: advice for advice in analysis.recommendations}
    make = partial(_card, rows=_rows(analysis), gains=measured_gains(analysis))
    steps = [make(step, alone.pop(step.id, None), analysis.plan[:at]) for at, step in enumerate(planned(analysis))]
    others = [make(advice, advice) for advice in alone.values()]
    return (steps, others) if steps else (others, [])


def _card(
    advice: Recommendation,
    alone: Recommendation | None,
    before: tuple[PlanStep, ...] = (),
    *,
    rows: Rows,
    gains: Mapping[str, MeasuredGain],
) -> Card:
    """Return the card of a recommendation. That of a plan's step has the reason and the evidence for it `alone`."""
    gain = of_advice(gains, advice.id)
    names = [*(each.name for each in before), advice.name if isinstance(advice, PlanStep) else advice.id]
    return Card(
        advice=advice,
        applied="+".join(names),
        reason=_paragraph(alone.reason, rows) if alone else (),
        explained=explained(unprofiled(advice.explained)),
        evidence=tuple(_linked(line, rows) for line in alone.evidence) if alone else (),
        costs=tuple(_costs_of(advice.costs, gain)),
        gain=gain,
        gain_together=of_steps(gains, names) if before else None,
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
