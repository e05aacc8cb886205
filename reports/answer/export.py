"""The JSON (analysis.schema.json), the CSV tables and the stacks of an analysis, for other programs."""

from typing import Any

import msgspec
from msgspec.structs import asdict

from tracekit.analyzers.cost import GPU
from tracekit.analyzers.results import (
    BOUNDS,
    COUNTER_MEANINGS,
    Analysis,
    CounterSource,
    DeviceTime,
    Projection,
    Source,
    StepLatency,
    Timeline,
)
from tracekit.reports.answer import advice_export, measured
from tracekit.reports.answer.headlines import headline, main_bound
from tracekit.reports.answer.plans import planned
from tracekit.reports.figures import leaves_of
from tracekit.reports.words import (
    csv_table,
    fields,
    inside,
    json_text,
    number,
    plain_rows,
    printable,
    public,
    public_frame,
    records,
)

SCHEMA_VERSION = "1.0"
_OF_A_PLACE = ("layer", "function", "location", "count")


def to_dict(analysis: Analysis) -> dict[str, Any]:
    """Return an analysis as plain Python values, as analysis.schema.json describes them."""
    return {
        "schema_version": SCHEMA_VERSION,
        "headline": _headline(analysis),
        "source": _source(analysis.source),
        "latency": _latency(analysis.latency),
        "timeline": {**_timeline(analysis.timeline), "steps": records(analysis, "steps")},
        "bound": fields(analysis.bound, " ".join(f"{name}:6" for name in (*BOUNDS, "unknown"))),
        "coverage": fields(analysis.coverage, "op:6 layer:6 cost:6"),
        **{
            table: records(analysis, table)
            for table in ("layers", "layer_types", "layer_parts", "layer_ops", "phases", "ops", "kernels", "ranges")
        },
        "recommendations": [advice_export.recommendation(each) for each in analysis.recommendations],
        "considered": [advice_export.considered(each) for each in analysis.considered],
        "plan": [advice_export.plan_step(each) for each in planned(analysis)],
        "memory_fit": advice_export.memory_fit(analysis.memory_fit),
        "predicted_from": advice_export.baseline(analysis.predicted_from) if analysis.predicted_from else None,
        "fusion_plan": records(analysis, "fusion_plan"),
        "predicted_work": records(analysis, "predicted_work"),
        "verified": _verified(analysis),
        "projection": _projection(analysis.projection) if analysis.projection else None,
        "idle_causes": records(analysis, "idle_causes"),
        "host_causes": records(analysis, "host_causes"),
        "counters": _counts(analysis),
        "counters_comparison": records(analysis, "counters_comparison"),
        "problems": records(analysis, "problems"),
    }


def _headline(analysis: Analysis) -> dict[str, Any]:
    first = analysis.recommendations[0].id if analysis.recommendations else None
    return {"text": headline(analysis), "bound": main_bound(analysis), "first": first}


def to_json(analysis: Analysis) -> str:
    """Return `to_dict` as JSON text."""
    return json_text(to_dict(analysis))


def to_csv(analysis: Analysis, table: str = "kernels") -> str:
    """Return one of `names.TABLES` as CSV with a header row.

    Times are in microseconds; unknown values are empty.
    """
    return csv_table(public_frame(analysis, table))


def _verified(analysis: Analysis) -> list[dict[str, Any]]:
    results = analysis.verified.results if analysis.verified else ()
    return [measured.result(each) for each in results]


def _counts(analysis: Analysis) -> list[dict[str, Any]]:
    counts, places = analysis.counts, analysis.places
    where = plain_rows(public(places))
    return [
        {
            "id": f"counter:{name}",
            "counter": name,
            "meaning": COUNTER_MEANINGS.get(str(name)),
            "a_step": rows["value"].tolist(),
            "places": [{key: row[key] or None for key in _OF_A_PLACE} for row in where if row["counter"] == name],
        }
        for name, rows in counts.groupby("counter", sort=False)
    ]


def _source(source: Source) -> dict[str, Any]:
    return {
        **fields(source, "kind format device device_name?"),
        "gpu": source.gpu.id if source.gpu else None,
        "roofs": _roofs(source.gpu) if source.gpu else None,
        **fields(source, "precision? layers_from"),
        "capture": msgspec.to_builtins(source.capture) if source.capture else None,
        "counters": _counters(source.counters) if source.counters else None,
    }


def _counters(counters: CounterSource) -> dict[str, Any]:
    return {**asdict(counters), "provenance": "measured", "busy_share": number(counters.busy_share, 6)}


def _roofs(gpu: GPU) -> dict[str, Any]:
    peaks = {name: float(peak) for name, peak in gpu.peaks_tflops.items()}
    return {"bandwidth_gbs": float(gpu.bandwidth_gbs), "peaks_tflops": peaks, "source": gpu.source}


def _latency(latency: StepLatency) -> dict[str, Any]:
    timed = latency.unprofiled
    return {
        "unprofiled_us": number(timed.median_us, 3) if timed else None,
        "unprofiled_p10_us": number(timed.p10_us, 3) if timed else None,
        "unprofiled_p90_us": number(timed.p90_us, 3) if timed else None,
        "samples": timed.samples if timed else 0,
        "profiled_us": number(latency.profiled_us, 3),
    }


def _timeline(timeline: Timeline) -> dict[str, Any]:
    return {
        "wall_us": timeline.wall_ns / 1000,
        "gpu_busy_us": timeline.busy_ns / 1000,
        "gpu_idle_us": timeline.idle_ns / 1000,
        "device": _device_time(timeline.device) if timeline.device else None,
    }


def _device_time(device: DeviceTime) -> dict[str, Any]:
    return fields(device, "span_ns compute_ns copy_ns communication_ns exposed_communication_ns")


def _projection(projection: Projection) -> dict[str, Any]:
    return {
        "gpu": projection.gpu.id,
        "latency_us": advice_export.interval(projection.latency_us),
        "busy_us": advice_export.interval(projection.busy_us),
        "memory_bytes": projection.memory_bytes,
        "fits": projection.fits if projection.memory_bytes is not None else None,
        "reason": projection.reason,
    }


SCHEMA = "https://www.speedscope.app/file-format-schema.json"
Stack = tuple[str, ...]


def to_speedscope(analysis: Analysis) -> str:
    """Return the busy time in steps as one sampled profile of speedscope, in ns; a sample is a stack, in order of its
    first work."""
    stacks = times_of_stacks(analysis)
    frames = {name: index for index, name in enumerate(dict.fromkeys(name for stack in stacks for name in stack))}
    profile = {
        "type": "sampled",
        "name": "busy time by layer, op and kernel",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(stacks.values()),
        "samples": [[frames[name] for name in stack] for stack in stacks],
        "weights": list(stacks.values()),
    }
    shared = {"frames": [{"name": name} for name in frames]}
    return json_text({"$schema": SCHEMA, "exporter": "tracekit", "shared": shared, "profiles": [profile]})


def to_collapsed(analysis: Analysis) -> str:
    """Return the busy time in steps as collapsed stacks: in a line the frames of a stack, then its ns."""
    stacks = times_of_stacks(analysis)
    lines = [f"{';'.join(name.replace(';', ':') for name in stack)} {ns}\n" for stack, ns in stacks.items()]
    return "".join(lines)


def times_of_stacks(analysis: Analysis) -> dict[Stack, int]:
    """Return the busy time in ns of each stack, from the outermost layer to the kernel."""
    layers = _stacks_of_layers(analysis)
    stacks: dict[Stack, int] = {}
    leaves = leaves_of(analysis)
    columns = (leaves[name].tolist() for name in ("layer", "op", "kernel", "ns"))
    for layer, op, kernel, ns in zip(*columns, strict=True):
        stack = (*(layers[layer] if layer >= 0 else ()), *(_frame(name) for name in (op, kernel) if name))
        stacks[stack] = stacks.get(stack, 0) + ns
    return stacks


def _stacks_of_layers(analysis: Analysis) -> list[Stack]:
    """Return, for each row of the layers, the frames from the outermost layer to it."""
    stacks: list[Stack] = []
    paths = [str(each) for each in analysis.layers["path"]]
    for path, type_, parent in zip(paths, analysis.layers["type"], analysis.layers["parent"], strict=True):
        name = inside(path, paths[parent] if parent >= 0 else "")
        stacks.append((*(stacks[parent] if parent >= 0 else ()), _frame(f"{name} ({type_})" if type_ else name)))
    return stacks


def _frame(name: str) -> str:
    return printable(name.removeprefix("void "))
