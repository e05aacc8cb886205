"""Projects a measured step to another GPU: each kernel's time is multiplied by the ratio of modelled times.

For a collective, only the time after all ranks have arrived is scaled, by the links between the GPUs. The rest is
waiting for other ranks, which a faster link does not shorten.
"""

import numpy as np
from msgspec.structs import replace

from tracekit.analyzers.core import Interval, intervals
from tracekit.analyzers.cost import GPU, Cost, Message, collective_ns, estimate_ns
from tracekit.analyzers.predict.memory import workspace_bytes
from tracekit.analyzers.predict.op_columns import Floats, present
from tracekit.analyzers.predict.step_baseline import Baseline
from tracekit.analyzers.results import Projection

_INTERVALS = intervals(__file__)
KERNEL_ERROR = _INTERVALS["kernel_error"]
"""Ratio of modelled to measured kernel time on a GPU that was held out of the fit."""


def project(base: Baseline, gpu: GPU) -> Projection:
    """Return the baseline's step on `gpu`, in microseconds. The expected host time stays; its range is that of machines
    with `gpu` relative to machines with the baseline's GPU."""
    there = moved(base, gpu)
    kernel = there.ops.kernel_ns

    def latency(error: float, host_factor: float) -> float:
        return there.simulate(there.ops.assign(kernel_ns=kernel * error), host_factor) / 1e3

    hosts, expected = host_range(base.gpu, gpu), latency(1.0, 1.0)
    return Projection(
        gpu=gpu,
        latency_us=Interval(latency(KERNEL_ERROR.low, hosts.low), expected, latency(KERNEL_ERROR.high, hosts.high)),
        busy_us=Interval(*(kernel.sum() / 1e3 * error for error in (KERNEL_ERROR.low, 1.0, KERNEL_ERROR.high))),
        reason=f"Kernel times measured on {base.gpu.name}, scaled by the kernel model's ratio; host as measured."
        + note_on_collectives(base)
        + "".join(f" {each}" for each in note_on_estimates(gpu)),
        memory_bytes=there.memory.peak if there.memory else None,
        memory_at_least=memory_at_least(base),
    )


def memory_at_least(base: Baseline) -> bool:
    """Return whether only a lower bound of the run's memory is known."""
    capture = base.source.capture
    return capture is None or not capture.peak_memory_bytes


def note_on_estimates(gpu: GPU) -> tuple[str, ...]:
    """Return a sentence that the GPU's rates are estimates; () if they were measured."""
    return (f"What the {gpu.name} sustains is {gpu.basis}.",) if gpu.is_estimated else ()


def moved(base: Baseline, gpu: GPU) -> Baseline:
    """Return the baseline on `gpu` with the same host. Its stated latency is that of the run."""
    ops = base.ops.assign(kernel_ns=_kernel_ns(base, gpu))
    source = replace(base.source, gpu=gpu)
    training = bool((base.ops.phase == "backward").any())
    workspaces = workspace_bytes(gpu, training=training)
    known = base.memory or base.least_memory
    memory = replace(known, workspaces=workspaces) if known else None
    latency_ns = gpu.launch_latency_us * 1e3
    return replace(base, gpu=gpu, ops=ops, source=source, predicted_memory=memory, launch_latency_ns=latency_ns)


def host_range(here: GPU, there: GPU) -> Interval:
    """Return the range of host time on machines with one GPU relative to the other. The expected ratio is 1."""
    ends = (there.host_op_us.low / here.host_op_us.expected, there.host_op_us.high / here.host_op_us.expected, 1.0)
    return Interval(min(ends), 1.0, max(ends))


def _kernel_ns(base: Baseline, gpu: GPU) -> Floats:
    copies = (base.ops.category == "memcpy") & ~base.ops.costed
    ratios = np.array([_ratio(cost, base.gpu, gpu) for cost in base.ops.cost], dtype=float)
    scaled = base.ops.kernel_ns * np.where(copies, base.gpu.pcie_gbs / gpu.pcie_gbs, ratios)
    rows = present(base.ops.message)
    calls = zip(base.ops.kernel_ns[rows], base.ops.message[rows], strict=True)
    scaled[rows] = [_collective_ns(measured, message, base.gpu, gpu) for measured, message in calls]
    return scaled


def _collective_ns(measured: float, message: Message, here: GPU, there: GPU) -> float:
    """Return the time of a collective on the other GPU; the measured time if the trace does not record its message."""
    if not message.known:
        return measured
    modelled = collective_ns(message, here)
    moving = min(measured, modelled)
    return measured - moving + moving * collective_ns(message, there) / modelled


def note_on_collectives(base: Baseline) -> str:
    """Return the caveats about collective times that are not scaled, each after a space; "" if there are none."""
    known = [message.known for message in base.ops.message[present(base.ops.message)]]
    unknown = known.count(False)
    waiting = " Collectives keep the time that they waited for other ranks." if any(known) else ""
    return waiting + (f" Left as measured: collectives of unknown size or group ({unknown:,})." if unknown else "")


def _ratio(cost: Cost | None, here: GPU, there: GPU) -> float:
    """Return the ratio of modelled times. Work of unknown cost is assumed to be memory-bound."""
    if cost is None:
        return here.bandwidth / there.bandwidth
    return estimate_ns(cost, there) / estimate_ns(cost, here)
