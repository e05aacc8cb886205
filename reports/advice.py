"""Advice and predictions as plain Python values, as the JSON contracts have them."""

from dataclasses import asdict
from typing import Any

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.memory import Memory
from tracekit.analyzers.prediction.values import Check, Considered, PlanStep, PredictedBaseline, Recommendation
from tracekit.reports.public import number


def recommendation(advice: Recommendation) -> dict[str, Any]:
    return {
        "id": advice.id,
        "title": advice.title,
        "speedup": interval(advice.speedup),
        "reason": advice.reason,
        "explained": advice.explained or None,
        "evidence": list(advice.evidence),
        "how_to": advice.how_to,
        "caveats": list(advice.caveats),
    }


def considered(option: Considered) -> dict[str, Any]:
    return {
        "id": option.id,
        "title": option.title,
        "recommended": option.recommended,
        "reason": option.reason,
        "explained": option.explained or None,
        "speedup": interval(option.speedup) if option.speedup else None,
    }


def plan_step(step: PlanStep) -> dict[str, Any]:
    return {
        "name": step.name,
        "title": step.title,
        "speedup": interval(step.speedup),
        "cumulative": interval(step.cumulative),
        "latency_us": interval(step.latency_us),
        "throughput": step.throughput,
        "memory_bytes": step.memory_bytes,
        "explained": step.explained,
        "how_to": step.how_to,
        "caveats": list(step.caveats),
    }


def baseline(start: PredictedBaseline) -> dict[str, Any]:
    return {
        "latency_us": number(start.latency_us, 3),
        "timed": start.timed,
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
    """Bytes by what they are for."""
    return {f"{name}_bytes": size for name, size in asdict(held).items()} if held else None


def interval(interval: Interval) -> dict[str, Any]:
    return {name: number(getattr(interval, name), 4) for name in ("low", "expected", "high")}
