"""Time of a convolution and of its gradients, as implicit GEMMs of cuDNN and as PyTorch's depthwise kernels."""

from collections.abc import Mapping
from typing import Any

from tracekit.analyzers.cost.hardware import GPU
from tracekit.analyzers.cost.ops.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.cost.ops.work import ConvolutionGradients, Precision, Product
from tracekit.analyzers.cost.time.gemm import VECTOR_BYTES, Machine
from tracekit.analyzers.cost.time.memory_bound import memory_seconds

_SIMT = ("fp64", "fp32")
_REACH = 16
"""Distance in positions from which on a tap is too far for Hopper's tensor memory accelerator, whose offsets in a
window are -16 to 15. The kernel that then computes the weights' gradient does not divide the positions among
multiprocessors."""
_HOPPER = (9, 0)


def convolution_seconds(cost: Cost, shape: Product, gpu: GPU, machine: Machine, fits: Mapping[str, Any]) -> float:
    """Return the seconds of all kernels of a convolution; `fits` are the sections of constants.toml."""
    fit, start = fits["convolution"], _start_seconds(fits)
    if _is_depthwise(shape.groups, cost):
        taps = _tap_seconds(cost.flops / 2, machine, fit["depthwise"]["forward"])
        return float(start + max(cost.bytes / machine.bandwidth, taps))
    seconds = start + _product_seconds(cost, shape, gpu, machine, fits)
    if not shape.bias:
        return seconds
    added = Cost(0, cost.write_bytes, cost.write_bytes, "pointwise", cost.precision, access="indexed")
    return seconds + memory_seconds(added, gpu, machine, fits["memory"])


def _start_seconds(fits: Mapping[str, Any]) -> float:
    return float(fits["gemm"]["tensor"]["start_us"] * 1e-6)


def _layout_seconds(stream: float, fits: Mapping[str, Any]) -> float:
    """Return the seconds of the two kernels that change layouts to channels last and back."""
    return 2 * (_start_seconds(fits) + stream)


def _product_seconds(cost: Cost, shape: Product, gpu: GPU, machine: Machine, fits: Mapping[str, Any]) -> float:
    """Return the seconds without the start."""
    fit = fits["convolution"]
    stream = cost.bytes / machine.bandwidth
    tensor = _on_tensor_units(cost, gpu)
    if tensor and cost.run * machine.operand_bytes % VECTOR_BYTES:
        compute = cost.flops * machine.operand_bytes / (fit["unaligned"] * machine.sms * machine.clock_hz)
        depth = shape.k * fit["element_ns"] * 1e-9
        return float(max(stream, compute, depth))
    compute = cost.flops / (machine.flops * fit["efficiency"])
    longest = max(stream, compute, _depth_seconds(shape, machine, fits))
    return float(longest + (_layout_seconds(stream, fits) if tensor and cost.access == "transposed" else 0.0))


def gradients_seconds(
    cost: Cost, work: ConvolutionGradients, gpu: GPU, machine: Machine, fits: Mapping[str, Any]
) -> float:
    """Return the seconds of all kernels of a convolution's gradients. Each kernel reads the result's gradient again."""
    fit, size = fits["convolution"], ELEMENT_BYTES[cost.precision]
    stream = (work.inputs + work.outputs) * size / machine.bandwidth
    depthwise = _is_depthwise(work.groups, cost)
    changes = cost.access == "transposed" and _on_tensor_units(cost, gpu) and not depthwise
    layouts = _layout_seconds(stream, fits) if changes else 0.0
    times = (_depthwise_gradients if depthwise else _product_gradients)(work, gpu, machine, fit)
    wanted = [seconds for seconds, of in zip(times, (work.of_input, work.of_weights), strict=True) if of]
    of_bias = memory_seconds(_sum(work, cost.precision), gpu, machine, fits["memory"]) if work.of_bias else 0.0
    return float(sum(_start_seconds(fits) + max(stream, seconds) + layouts for seconds in wanted)) + of_bias


def _sum(work: ConvolutionGradients, precision: Precision) -> Cost:
    """Return the cost of the bias's gradient: the sum over the positions of each channel."""
    channels = max(1, round(work.outputs / work.positions))
    read = round(work.outputs * ELEMENT_BYTES[precision])
    written = round(channels * ELEMENT_BYTES[precision])
    return Cost(work.outputs, read, written, "reduction", precision, access="rows", row=work.outputs // channels)


def _product_gradients(
    work: ConvolutionGradients, gpu: GPU, machine: Machine, fit: Mapping[str, Any]
) -> tuple[float, float]:
    """Return the seconds of arithmetic for the gradients of the input and of the weights."""
    flops = 2 * work.positions * work.weights
    divides = gpu.compute_capability < _HOPPER or work.reach < _REACH
    depth = 0.0 if divides else work.positions * machine.operand_bytes * fit["byte_ns"] * 1e-9
    of_weights = max(flops / (machine.flops * fit["weights_efficiency"]), depth)
    return flops / (machine.flops * fit["efficiency"]), of_weights


def _depthwise_gradients(
    work: ConvolutionGradients, _: GPU, machine: Machine, fit: Mapping[str, Any]
) -> tuple[float, float]:
    cycles = fit["depthwise"]
    of_input = _tap_seconds(work.inputs * work.taps, machine, cycles["gradients"])
    return of_input, _tap_seconds(work.outputs * work.taps, machine, cycles["gradients"])


def _is_depthwise(groups: int, cost: Cost) -> bool:
    return groups > 1 and cost.run == 1


def _tap_seconds(taps: float, machine: Machine, cycles: float) -> float:
    """Return the seconds of a depthwise kernel, which takes `cycles` of a multiprocessor per tap, position and
    channel."""
    return taps * cycles / machine.sms / machine.clock_hz


def _on_tensor_units(cost: Cost, gpu: GPU) -> bool:
    return gpu.runs_as(cost.precision) not in _SIMT


def _depth_seconds(shape: Product, machine: Machine, fits: Mapping[str, Any]) -> float:
    """Return the seconds that one CTA needs for the whole depth (k), or for a part of it plus the reduction after
    split-K."""
    whole = shape.k * machine.operand_bytes * fits["convolution"]["byte_ns"] * 1e-9
    added = fits["gemm"]["tensor"]["split_us"] * 1e-6
    return min(whole / parts + (parts - 1) * added for parts in (1, 2, 4, 8))
