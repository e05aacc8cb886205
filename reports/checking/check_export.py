"""A check as JSON, for other programs."""

from typing import Any

from tracekit.analyzers.gate.verdict import BudgetLine, Check, CounterChange, Culprit, TimeChange
from tracekit.reports.checking.check_sentences import verdict_sentence
from tracekit.reports.public import number
from tracekit.reports.untrusted import json_text

SCHEMA_VERSION = "1.0"


def to_dict(check: Check) -> dict[str, Any]:
    """Return the check as plain Python values. Times are in microseconds."""
    return {
        "schema_version": SCHEMA_VERSION,
        "outcome": check.outcome,
        "verdict": verdict_sentence(check),
        "run": check.run,
        "baseline": check.baseline or None,
        "kind": check.kind,
        "basis": check.basis,
        "counters_only": check.counters_only,
        "level": check.level,
        "margin": check.margin,
        "culprits": [_culprit(each) for each in check.culprits],
        "times": [_time(change) for change in check.times],
        "counters": [_counter(change) for change in check.counters],
        "budgets": [_budget(line) for line in check.budgets],
        "notes": list(check.notes),
    }


def to_json(check: Check) -> str:
    """Return `to_dict` as JSON text."""
    return json_text(to_dict(check))


def _culprit(culprit: Culprit) -> dict[str, Any]:
    names = ("what", "change", "layer", "op", "cause", "location", "function")
    return {name: getattr(culprit, name) or None for name in names}


def _time(change: TimeChange) -> dict[str, Any]:
    ratio = change.ratio
    return {
        "kind": change.kind,
        "name": change.name or None,
        "before_us": number(change.before_ns / 1e3, 3),
        "after_us": number(change.after_ns / 1e3, 3),
        "ratio": {name: number(getattr(ratio, name), 5) for name in ("low", "value", "high")},
        "outcome": change.outcome,
    }


def _counter(change: CounterChange) -> dict[str, Any]:
    return {
        "name": change.name,
        "before": number(change.before, 3),
        "after": number(change.after, 3),
        "outcome": change.outcome,
        "decides": change.decides,
        "varies": change.varies,
    }


def _budget(line: BudgetLine) -> dict[str, Any]:
    scale = 1e3 if line.unit == "ns" else 1.0
    return {
        "name": line.name,
        "most": number(line.most / scale, 3),
        "value": number(line.value / scale, 3),
        "unit": "µs" if line.unit == "ns" else line.unit,
        "outcome": line.outcome,
    }
