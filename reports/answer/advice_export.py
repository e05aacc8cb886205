"""Advice and predictions as plain Python values, as the JSON contracts have them."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from msgspec.structs import asdict

from tracekit.analyzers.core import Interval
from tracekit.analyzers.results import (
    Check,
    Considered,
    Evidence,
    Memory,
    MemoryFit,
    PlanStep,
    PredictedBaseline,
    Recommendation,
    Statements,
)
from tracekit.reports.answer.plans import unprofiled
from tracekit.reports.words import fields, number, wording

_WRITTEN: dict[str, Callable[[Any], Any]] = {
    "speedup": lambda advice: interval(advice.speedup) if advice.speedup else None,
    "cumulative": lambda step: interval(step.cumulative) if step.cumulative else None,
    "latency_us": lambda step: interval(step.latency_us),
    "reason": lambda advice: wording.why(advice),
    "explained": lambda advice: wording.explained(unprofiled(advice.explained)) or None,
    "evidence": lambda advice: list(wording.lines(advice.evidence)),
    "facts": lambda advice: facts((*advice.reason, *getattr(advice, "evidence", ()))),
    "caveats": lambda advice: list(advice.caveats),
    "costs": lambda advice: asdict(advice.costs) if advice.costs else None,
    "condition": lambda advice: advice.condition or None,
}
"""How fields are written that are not plain values."""


def _fields(advice: Considered, names: str) -> dict[str, Any]:
    return {name: _WRITTEN.get(name, attrgetter(name))(advice) for name in names.split()}


def recommendation(advice: Recommendation) -> dict[str, Any]:
    names = "id title speedup reason explained evidence facts how_to caveats costs throughput condition"
    return _fields(advice, names)


def considered(option: Considered) -> dict[str, Any]:
    return _fields(option, "id title recommended reason explained facts speedup")


def plan_step(step: PlanStep) -> dict[str, Any]:
    names = "name title speedup cumulative latency_us throughput memory_bytes explained how_to caveats costs condition"
    return _fields(step, names)


def memory_fit(fit: MemoryFit | None) -> dict[str, Any] | None:
    """Return the remedies that make the run fit; None if it fits, or its peak is unknown."""
    if fit is None:
        return None
    return {
        **fields(fit, "gpu needed_bytes at_least available_bytes largest_batch"),
        "remedies": [
            {
                "apply": remedy.name,
                **fields(remedy, "title peak_bytes free_bytes fits"),
                "speedup": interval(remedy.speedup),
            }
            for remedy in fit.remedies
        ],
    }


def facts(statements: Statements) -> list[dict[str, Any]]:
    """Return the values that statements quote, with the table cells that hold them."""
    return [_fact(each.kind, value) for each in statements for value in each.evidence]


def _fact(statement: str, evidence: Evidence) -> dict[str, Any]:
    value: int | float | str | None = evidence.value
    column, unit = evidence.column, evidence.unit
    if isinstance(value, float | int):
        value = number(value / 1000, 3) if unit == "ns" else number(value, 6) if isinstance(value, float) else value
    return {
        "statement": statement,
        "role": evidence.role,
        "table": evidence.table,
        "row": evidence.row or None,
        "column": f"{column.removesuffix('_ns')}_us" if unit == "ns" else column,
        "unit": "µs" if unit == "ns" else unit,
        "value": value,
    }


def baseline(start: PredictedBaseline) -> dict[str, Any]:
    return {
        **fields(start, "latency_us:3 timed idle_share:6"),
        "host_speed": fields(start.host_speed, "ratio:4 source"),
        "profiler_share": None if start.profiler_share is None else number(start.profiler_share, 6),
        "memory_bytes": start.memory.peak if start.memory else None,
        "memory": memory(start.memory),
        "as_traced": _check(start.as_traced),
        "calibrated": _check(start.calibrated),
    }


def _check(check: Check | None) -> dict[str, Any] | None:
    return fields(check, "stated_us:3 simulated_us:3 error:6 passed") if check else None


def memory(held: Memory | None) -> dict[str, Any] | None:
    """Return the bytes by purpose."""
    return {f"{name}_bytes": size for name, size in asdict(held).items()} if held else None


def interval(interval: Interval) -> dict[str, Any]:
    return fields(interval, "low:4 expected:4 high:4")
