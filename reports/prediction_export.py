"""The JSON (prediction.schema.json) of a prediction, for other programs."""

import json
from importlib.resources import files
from typing import Any

from tracekit.analyzers.prediction.values import Change, GainThere, OpClassTime, Prediction
from tracekit.reports import advice_export
from tracekit.reports.public import number
from tracekit.reports.sentences import explained
from tracekit.reports.untrusted import json_text

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


def schema() -> dict[str, Any]:
    """Return the JSON Schema of `to_dict`."""
    return json.loads((files("tracekit.reports") / "prediction.schema.json").read_text("utf-8"))


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
