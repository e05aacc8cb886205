"""Builds the table WORK: every item attributed, costed, and placed under the roofs of its GPU."""

from math import prod

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.attribute.attributed import Attributed
from tracekit.analyzers.attribute.bound import Roofs, intensity, item_bound, own_bound, roofs
from tracekit.analyzers.attribute.costing import Costed, cost_items
from tracekit.analyzers.attribute.host import Host, counted_calls
from tracekit.analyzers.attribute.items import WorkItems, gaps_in_steps
from tracekit.analyzers.attribute.nesting import Rows, take
from tracekit.analyzers.core import Ints
from tracekit.analyzers.cost import GPU, hardware, tensors
from tracekit.analyzers.results import WORK
from tracekit.analyzers.trace import (
    CaptureInfo,
    DeviceProperties,
    Metadata,
    Problem,
    problem,
    recorded_shapes,
    recorded_type,
)


class Judged(msgspec.Struct, frozen=True):
    """Cost, roofs and own bound of work items, with one entry per item."""

    costed: Costed
    roofs: Roofs
    own_bound: npt.NDArray[np.object_]
    measured: Rows
    """Row in COUNTERS that the cost is from; -1 if it is counted."""


def judge(host: Host, attributed: Attributed, gpu: GPU | None, capture: CaptureInfo | None) -> Judged:
    """Compute costs, roofs and own bounds. `capture` describes the run if tracekit captured it."""
    tf32, parameters = bool(capture and capture.dtype == "tf32"), parameter_count(host.table, capture)
    replay = np.where(attributed.origin.captured >= 0, attributed.origin.launch, -1)
    costed = cost_items(host, attributed.items, attributed.origin.op, replay, tf32, parameters)
    placed = roofs(costed, attributed.items.duration, gpu)
    counted = np.full(len(attributed.items.start), -1, dtype=np.int32)
    return Judged(costed, placed, own_bound(attributed.items, costed, placed, gpu), counted)


def work_table(attributed: Attributed, names: pd.Series, judged: Judged, idle_scale: float) -> pd.DataFrame:
    """Return WORK. `names` is the name column of the host table.

    `idle_scale` is the ratio of idle time without a profiler to that in the trace, which is used only for bounds.
    """
    items, costed, gap = attributed.items, judged.costed, gaps_in_steps(attributed.items, attributed.steps.of_item)
    return WORK.frame(
        {
            "start_ns": items.start,
            "duration_ns": items.duration,
            "busy_ns": items.busy,
            "gap_ns": gap,
            "delay_ns": attributed.origin.delay_ns,
            "device": items.device,
            "stream": items.stream,
            "category": items.category,
            "name": items.name,
            "launch": attributed.origin.launch,
            "graph": attributed.origin.graph,
            "captured": attributed.origin.captured,
            "op": attributed.origin.op,
            "op_name": _op_names(names, attributed.origin.op),
            "cost_op": costed.cost_op,
            "layer": attributed.placed.of_item,
            "phase": attributed.phases.of_item,
            "step": attributed.steps.of_item,
            "family": costed.family,
            "precision": costed.precision,
            "flops": costed.flops,
            "bytes": costed.bytes,
            "counters": judged.measured,
            "intensity": intensity(costed.flops, costed.bytes),
            "roof_fraction": judged.roofs.fraction,
            "bound": item_bound(judged.own_bound, items.duration, gap * idle_scale, attributed.origin.delay_ns),
            "own_bound": judged.own_bound,
        }
    )


def _op_names(names: pd.Series, op: Rows) -> pd.Categorical:
    code, known = pd.factorize(take(names.cat.codes.to_numpy(), op))
    texts = ["" if number < 0 else str(names.cat.categories[number]) for number in known]
    number, distinct = pd.factorize(pd.Series(texts, dtype=object))  # An op may be named "", too.
    return pd.Categorical.from_codes(number[code], pd.Index(distinct, dtype=object))


def with_measured(
    judged: Judged, items: WorkItems, device: pd.DataFrame, counters: pd.DataFrame, gpu: GPU | None
) -> Judged:
    """Return costs, roofs and bounds with the measurements of matching kernel launches.

    `device` is the table DEVICE and `counters` the table COUNTERS. Quantities of a matched kernel that were not
    measured stay as counted.
    """
    from tracekit.analyzers.trace import match  # few runs have counters

    row = match(device, counters)
    flops, moved = (np.append(counters[name].to_numpy(), np.nan)[row] for name in ("flops", "dram_bytes"))
    used = np.isfinite(flops) | np.isfinite(moved)
    row = np.where(used, row, -1)
    costed = msgspec.structs.replace(
        judged.costed,
        flops=_or(flops, judged.costed.flops),
        bytes=_or(moved, judged.costed.bytes),
        precision=_precisions(counters, row, judged.costed.precision),
        estimated=judged.costed.estimated & ~used,
    )
    placed = roofs(costed, items.duration, gpu)
    return Judged(costed, placed, own_bound(items, costed, placed, gpu), row.astype(np.int32))


def _or(measured: npt.NDArray[np.float64], counted: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(np.isfinite(measured), measured, counted)


def _precisions(counters: pd.DataFrame, row: Ints, counted: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    names = np.array([*counters["precision"].astype(object), ""], dtype=object)[row]
    return np.where(names != "", names, counted)


ACCUMULATED = "torch::autograd::AccumulateGrad"
_SMALLEST = 2
"""Smallest size in bytes of an element of a trained parameter."""


def parameter_count(host: pd.DataFrame, capture: CaptureInfo | None) -> int | None:
    """Return the number of elements of all parameters; None if it is unknown.

    Each backward pass accumulates every parameter's gradient once, so the count of the rarest gradient shape is the
    number of backward passes.
    """
    if capture and capture.parameters:
        return capture.parameters
    return sum(elements for elements, _ in _gradients(host)) or None


def gradient_bytes(host: pd.DataFrame) -> int:
    """Return the bytes of the gradients of all parameters, at least; 0 if unknown."""
    return sum(elements * size for elements, size in _gradients(host))


def _gradients(host: pd.DataFrame) -> list[tuple[int, int]]:
    """Return the elements of the gradients of each shape and type, and the bytes of an element."""
    calls = counted_calls(host, (host["name"] == ACCUMULATED).to_numpy(), "shapes", "dtypes")
    counted = [(_elements(shapes), _size(names), n) for (shapes, names), n in calls.items()]
    passes = min((n for elements, _, n in counted if elements), default=0)
    return [(elements * n // passes, size) for elements, size, n in counted if passes]


def _elements(shapes: str) -> int:
    """Return the number of elements of the gradient; 0 if its shape is not recorded."""
    return sum(prod(dims) for dims in recorded_shapes(shapes)[:1] if dims is not None)


def _size(names: str) -> int:
    dtype = tensors.find(recorded_type(names))
    return max(_SMALLEST, dtype.bytes) if dtype else _SMALLEST


class RunDevice(msgspec.Struct, frozen=True):
    """The device that ran the work."""

    name: str
    """Name that the driver reports; "" if it is not recorded."""
    gpu: GPU | None
    """None if it is unknown, or a CPU."""
    problems: tuple[Problem, ...] = ()


def run_device(metadata: Metadata, items: WorkItems, named: GPU | None) -> RunDevice:
    """Return the device that the trace names (or for which it was modelled); `named` is used only if it names none."""
    capture = metadata.capture
    if not items.on_device:
        return RunDevice(capture.device_name if capture else "", None)
    device = _busiest(metadata, items)
    name = device.name if device else capture.device_name if capture else ""
    if capture and capture.source == "modelled" and capture.gpu:
        return RunDevice(capture.device_name or name, hardware.gpu_of_capture(capture))
    seen = device or DeviceProperties(-1, name)
    if gpu := hardware.resolve(name, seen.sms, seen.memory_bytes, seen.compute_capability):
        return RunDevice(name, gpu) if hardware.has_model(name, gpu.id) else _by_properties(name, gpu)
    if named:
        return RunDevice(name, named, (problem("gpu-as-named", detail=named.name),))
    return RunDevice(name, None, (problem("unknown-gpu", detail=f' ("{name}")' if name else ""),))


def _by_properties(name: str, gpu: GPU) -> RunDevice:
    """Return a device that has the properties of `gpu`, but not its name."""
    like = problem("gpu-by-properties", detail=f'"{name}", has the properties of an {gpu.name}')
    return RunDevice(name, replace(gpu, name=name) if name else gpu, (like,))


def _busiest(metadata: Metadata, items: WorkItems) -> DeviceProperties | None:
    """Return the device with the most work; the first named one if that device is not described in the trace."""
    ids, inverse = np.unique(items.device, return_inverse=True)
    busiest = int(ids[np.bincount(inverse, weights=items.busy).argmax()])
    described = [device for device in metadata.devices if device.name or device.sms]
    return next((device for device in described if device.id == busiest), described[0] if described else None)
