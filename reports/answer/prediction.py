"""A prediction as a document and as JSON: the answer, its sources, and alternatives."""

from collections.abc import Iterator
from typing import Any

from tracekit.analyzers.core import Interval
from tracekit.analyzers.results import (
    Change,
    Check,
    Considered,
    GainThere,
    HostSpeed,
    Memory,
    OpClassTime,
    PlanStep,
    Prediction,
)
from tracekit.reports.answer import advice_export
from tracekit.reports.answer.headlines import of_fit
from tracekit.reports.document import Document, Facts, Row, Table
from tracekit.reports.words import (
    ABSENT,
    duration,
    explained,
    json_text,
    number,
    quantity,
    speedup,
    times,
    why,
)

_TIMED = {
    "unprofiled": "measured without a profiler",
    "modelled": "MODELLED: nothing was measured",
    "profiled": "as in the trace, under a profiler",
}


_HOSTS = {
    "calls": "derived from the trace's launch calls",
    "assumed": "assumed: typical for such a GPU",
    "modelled": "as the run was modelled",
}


def prediction_document(prediction: Prediction) -> Document:
    """Return the answer, its sources, and alternatives."""
    return Document("Prediction", [Facts(_lines(prediction)), *_tables(prediction)])


def _lines(prediction: Prediction) -> list[tuple[str, str]]:
    baseline = prediction.baseline
    return [
        ("applied", _applied(prediction)),
        ("before", f"{duration(baseline.latency_us)} per step, {_TIMED[baseline.timed]}"),
        ("after", f"{duration(prediction.latency_us.expected)} per step ({_range(prediction.latency_us)})"),
        *_gains(prediction),
        ("memory", _memory(prediction)),
        ("why", explained(Change(prediction.by_op_class, prediction.work_factor))),
        ("host", _host(prediction.baseline.host_speed)),
        ("check", _check(prediction)),
        *_listed("how to", prediction.how_to),
        *_listed("caveats", prediction.caveats),
    ]


def _applied(prediction: Prediction) -> str:
    what = " + ".join(prediction.applied) or "nothing (no optimization is predicted to help)"
    batch = f", batch {prediction.batch_size}" if prediction.batch_size else ""
    return f"{what}; predicted for {prediction.gpu.name}{batch}"


def _gains(prediction: Prediction) -> list[tuple[str, str]]:
    """Return the gain of the optimizations on the predicted GPU, then that together with the change of GPU."""
    whole, there = _speedup(prediction), prediction.there
    if there is None:
        return [("speed-up", whole)]
    own = f"{_expected(there.speedup)}, over {duration(there.latency_us.expected)} per step without it {_where(there)}"
    return [("speed-up", own), ("in all", f"{whole}, over the run as it is")]


def _where(there: GainThere) -> str:
    """Return the batch and the GPU of the gain."""
    named = [name.partition(":")[::2] for name in there.setting]
    return " ".join(f"on {value}" if kind == "gpu" else f"at batch {value}" for kind, value in named)


def _speedup(prediction: Prediction) -> str:
    work, expected = prediction.work_factor, _expected(prediction.speedup)
    return expected if work == 1 else f"{expected}, of the work done: a step does {work:.3g} times as much"


def _expected(gain: Interval) -> str:
    return f"{times(gain.expected, gain.high)} expected, {speedup(gain)}"


def _range(latency: Interval) -> str:
    return f"{duration(latency.low)} to {duration(latency.high)}"


def _memory(prediction: Prediction) -> str:
    before, after = prediction.baseline.memory, prediction.memory
    if after is None:
        return "not recorded"
    known = f"{quantity(before.peak, 'B')} →" if before else "not recorded; at least"
    has = quantity(prediction.gpu.memory_bytes, "B")
    peak = f"{known} {quantity(after.peak, 'B')} at the peak, of {has} ({_parts(after)})"
    return f"{peak}: {of_fit(prediction.memory_fit)}" if prediction.memory_fit else peak


def _parts(memory: Memory) -> str:
    named = {
        "weights": memory.weights,
        "buffers": memory.buffers,
        "KV cache": memory.kv_cache,
        "activations": memory.activations,
        "gradients": memory.gradients,
        "optimizer": memory.optimizer_state,
        "loss": memory.loss,
        "tied gradients": memory.tied_gradients,
        "temporaries": memory.temporaries,
        "workspaces": memory.workspaces,
    }
    return ", ".join(f"{name} {quantity(size, 'B')}" for name, size in named.items() if size)


def _host(speed: HostSpeed) -> str:
    relative = f"a launch takes {speed.ratio:.2f} times as long as on the host of tracekit's H200 runs"
    return f"{relative} ({_HOSTS[speed.source]})"


def _check(prediction: Prediction) -> str:
    start = prediction.baseline
    as_traced = _compared("the step as traced", start.as_traced)
    calibrated = _compared("the step without a profiler (fitted)", start.calibrated)
    return "; ".join(part for part in (as_traced, calibrated) if part) or "nothing to compare the simulation with"


def _compared(what: str, check: Check | None) -> str:
    if check is None:
        return ""
    verdict = "" if check.passed else ", MORE THAN 5 % OFF"
    times = f"{duration(check.simulated_us)}, took {duration(check.stated_us)}"
    return f"{what} simulates to {times}: {100 * check.error:+.1f} %{verdict}"


def _listed(label: str, lines: tuple[str, ...]) -> list[tuple[str, str]]:
    separate = [line for each in lines for line in each.splitlines()]
    return [(label if rank == 0 else "", line) for rank, line in enumerate(separate)]


def _tables(prediction: Prediction) -> Iterator[Table]:
    classes = [
        (each.op_class, *(duration(ns / 1e3) for ns in (each.before_ns, each.after_ns, each.after_ns - each.before_ns)))
        for each in prediction.by_op_class
    ]
    yield Table(("op class", ">before", ">after", ">change"), classes, "Where it comes from")
    if prediction.plan:
        title = "The best plan: each step after those above it"
        yield Table(("step", ">adds", ">together", ">a step takes"), [_step(each) for each in prediction.plan], title)
    if prediction.considered:
        rows = [_alone(option) for option in sorted(prediction.considered, key=_rank)]
        yield Table(("id", ">speed-up", "why"), rows, "Each alone")


def _step(step: PlanStep) -> Row:
    latency = f"{duration(step.latency_us.expected)} ({_range(step.latency_us)})"
    title = f"{step.title} (throughput)" if step.throughput else step.title
    return (title, speedup(step.speedup), speedup(step.cumulative) if step.cumulative else ABSENT, latency)


def _alone(option: Considered) -> Row:
    reason = " ".join(part for part in (why(option), explained(option.explained)) if part)
    return (option.id, speedup(option.speedup) if option.speedup else ABSENT, reason)


def _rank(option: Considered) -> tuple[bool, float]:
    return not option.recommended, -(option.speedup.low if option.speedup else 0)


SCHEMA_VERSION = "1.0"


def to_dict(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as plain Python values, as prediction.schema.json describes them."""
    memory = prediction.memory
    return {
        "schema_version": SCHEMA_VERSION,
        "applied": list(prediction.applied),
        "gpu": prediction.gpu.id,
        "gpu_memory_bytes": prediction.gpu.memory_bytes,
        "batch_size": prediction.batch_size,
        "baseline": advice_export.baseline(prediction.baseline),
        "predicted": {
            "latency_us": advice_export.interval(prediction.latency_us),
            "memory_bytes": memory.peak if memory else None,
            "memory": advice_export.memory(memory),
        },
        "speedup": advice_export.interval(prediction.speedup),
        "work_factor": number(prediction.work_factor, 4),
        "there": _there(prediction.there),
        "by_op_class": [_op_class(each, prediction) for each in prediction.by_op_class],
        "explained": explained(Change(prediction.by_op_class, prediction.work_factor)),
        "how_to": list(prediction.how_to),
        "caveats": list(prediction.caveats),
        "considered": [advice_export.considered(each) for each in prediction.considered],
        "memory_fit": advice_export.memory_fit(prediction.memory_fit),
        "plan": [advice_export.plan_step(each) for each in prediction.plan],
    }


def _there(gain: GainThere | None) -> dict[str, Any] | None:
    if gain is None:
        return None
    latency, own = advice_export.interval(gain.latency_us), advice_export.interval(gain.speedup)
    return {"setting": list(gain.setting), "latency_us": latency, "speedup": own}


def to_json(prediction: Prediction) -> str:
    """Return `to_dict` as JSON text."""
    return json_text(to_dict(prediction))


def _op_class(each: OpClassTime, prediction: Prediction) -> dict[str, Any]:
    before = sum(other.before_ns for other in prediction.by_op_class)
    after = sum(other.after_ns for other in prediction.by_op_class)
    return {
        "op_class": each.op_class,
        "before_us": each.before_ns / 1000,
        "after_us": each.after_ns / 1000,
        "before_share": number(each.before_ns / max(before, 1), 6),
        "after_share": number(each.after_ns / max(after, 1), 6),
    }
