"""Advice and predictions as plain Python values, as the JSON contracts have them."""

from dataclasses import asdict
from typing import Any

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
from tracekit.reports.words import number, wording


def recommendation(advice: Recommendation) -> dict[str, Any]:
    return {
        "id": advice.id,
        "title": advice.title,
        "speedup": interval(advice.speedup),
        "reason": wording.sentences(advice.reason),
        "explained": wording.explained(advice.explained) or None,
        "evidence": list(wording.lines(advice.evidence)),
        "facts": facts((*advice.reason, *advice.evidence)),
        "how_to": advice.how_to,
        "caveats": list(advice.caveats),
        "costs": asdict(advice.costs) if advice.costs else None,
        "throughput": advice.throughput,
        "condition": advice.condition or None,
    }


def memory_fit(fit: MemoryFit | None) -> dict[str, Any] | None:
    """Return the remedies that make the run fit; None if it fits, or its peak is unknown."""
    if fit is None:
        return None
    remedies = [
        {
            "apply": remedy.name,
            "title": remedy.title,
            "peak_bytes": remedy.peak_bytes,
            "free_bytes": remedy.free_bytes,
            "fits": remedy.fits,
            "speedup": interval(remedy.speedup),
        }
        for remedy in fit.remedies
    ]
    return {
        "gpu": fit.gpu,
        "needed_bytes": fit.needed_bytes,
        "at_least": fit.at_least,
        "available_bytes": fit.available_bytes,
        "largest_batch": fit.largest_batch,
        "remedies": remedies,
    }


def considered(option: Considered) -> dict[str, Any]:
    return {
        "id": option.id,
        "title": option.title,
        "recommended": option.recommended,
        "reason": wording.why(option),
        "explained": wording.explained(option.explained) or None,
        "facts": facts(option.reason),
        "speedup": interval(option.speedup) if option.speedup else None,
    }


def plan_step(step: PlanStep) -> dict[str, Any]:
    return {
        "name": step.name,
        "title": step.title,
        "speedup": interval(step.speedup),
        "cumulative": interval(step.cumulative) if step.cumulative else None,
        "latency_us": interval(step.latency_us),
        "throughput": step.throughput,
        "memory_bytes": step.memory_bytes,
        "explained": wording.explained(step.explained),
        "how_to": step.how_to,
        "caveats": list(step.caveats),
        "costs": asdict(step.costs) if step.costs else None,
        "condition": step.condition or None,
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
        "latency_us": number(start.latency_us, 3),
        "timed": start.timed,
        "idle_share": number(start.idle_share, 6),
        "host_speed": {"ratio": number(start.host_speed.ratio, 4), "source": start.host_speed.source},
        "profiler_share": None if start.profiler_share is None else number(start.profiler_share, 6),
        "memory_bytes": start.memory.peak if start.memory else None,
        "memory": memory(start.memory),
        "as_traced": _check(start.as_traced),
        "calibrated": _check(start.calibrated),
    }


def _check(check: Check | None) -> dict[str, Any] | None:
    if check is None:
        return None
    return {
        "stated_us": number(check.stated_us, 3),
        "simulated_us": number(check.simulated_us, 3),
        "error": number(check.error, 6),
        "passed": check.passed,
    }


def memory(held: Memory | None) -> dict[str, Any] | None:
    """Return the bytes by purpose."""
    return {f"{name}_bytes": size for name, size in asdict(held).items()} if held else None


def interval(interval: Interval) -> dict[str, Any]:
    return {name: number(getattr(interval, name), 4) for name in ("low", "expected", "high")}
