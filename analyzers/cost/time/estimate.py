"""Modelled time of an op's kernels on a named GPU."""

from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from functools import cache, lru_cache
from math import ceil
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tracekit.analyzers.core import toml_table
from tracekit.analyzers.cost.hardware import GPU
from tracekit.analyzers.cost.ops.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.cost.ops.work import Attention, ConvolutionGradients, Norm, Precision, Product, Recurrent
from tracekit.analyzers.cost.time.attention import attention_seconds, backend
from tracekit.analyzers.cost.time.gemm import VECTOR_BYTES, Machine, product_seconds
from tracekit.analyzers.cost.time.memory_bound import memory_seconds

__all__ = ["estimate_ns"]


CONSTANTS = Path(__file__).parent / "constants.toml"


@lru_cache(maxsize=1 << 16)
def estimate_ns(cost: Cost, gpu: GPU) -> float:
    """Return the nanoseconds on the device without launch gaps; never below the roofline."""
    return max(model_seconds(cost, gpu), roofline_seconds(cost, gpu)) * 1e9


def roofline_seconds(cost: Cost, gpu: GPU) -> float:
    """Return the lower bound of any kernel: FLOPs at the peak rate, and bytes at the bandwidth if they exceed the
    L2."""
    compute = cost.flops / gpu.peak_flops(cost.precision)
    return max(compute, cost.bytes / gpu.bandwidth if cost.bytes > gpu.l2_bytes else 0.0)


@cache
def constants() -> dict[str, Any]:
    """Return constants.toml. A section has the numbers of the one that it is like, too."""
    table = toml_table(CONSTANTS)
    return {name: linked(sections) for name, sections in table.items()}


def machine(gpu: GPU, precision: Precision) -> Machine:
    return Machine(
        flops=gpu.sustained_flops(precision),
        bandwidth=gpu.bandwidth * gpu.copy_efficiency,
        sms=gpu.sms,
        clock_hz=gpu.clock_ghz * 1e9,
        operand_bytes=ELEMENT_BYTES[precision],
    )


def model_seconds(cost: Cost, gpu: GPU) -> float:
    """Return the seconds by the model of the cost's family, without the roofline as a lower bound."""
    if cost.flops and isinstance(cost.work, Attention):
        fit = constants()["attention"][backend(cost, gpu)]
        return attention_seconds(cost, cost.work, gpu, machine(gpu, cost.precision), fit)
    if cost.family == "convolution" and isinstance(cost.work, Product):
        return convolution_seconds(cost, cost.work, gpu, machine(gpu, cost.precision), constants())
    if isinstance(cost.work, ConvolutionGradients):
        return gradients_seconds(cost, cost.work, gpu, machine(gpu, cost.precision), constants())
    if cost.flops and isinstance(cost.work, Product):
        return product_seconds(cost, cost.work, gpu, machine(gpu, cost.precision), constants()["gemm"])
    if isinstance(cost.work, Recurrent):
        return recurrent_seconds(cost, cost.work, gpu, machine(gpu, cost.precision), constants())
    if isinstance(cost.work, Norm) and cost.work.grouped:
        return group_norm_seconds(cost, gpu, machine(gpu, cost.precision), constants()["memory"])
    return max(
        memory_seconds(cost, gpu, machine(gpu, cost.precision), constants()["memory"]),
        cost.flops / gpu.sustained_flops(cost.precision),
    )


_EXPECTED = 1
"""Position in a list of low, expected and high."""


def linked(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections, with intervals as expected. One that is like another is a ChainMap whose first map holds its
    own values."""
    own = {name: _expected(values) if isinstance(values, dict) else values for name, values in sections.items()}
    return {name: _chain(name, own) if isinstance(values, dict) else _middle(values) for name, values in own.items()}


def _expected(section: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _middle(value) for name, value in section.items()}


def _middle(value: Any) -> Any:
    return value[_EXPECTED] if isinstance(value, list) else value


def _chain(name: str, own: Mapping[str, dict[str, Any]]) -> MutableMapping[str, Any]:
    maps = [own[name]]
    while "like" in maps[-1]:
        maps.append(own[maps[-1]["like"]])
    return ChainMap(*maps) if maps[1:] else maps[0]


def group_norm_seconds(cost: Cost, gpu: GPU, machine: Machine, families: Mapping[str, Any]) -> float:
    """Return the seconds of all kernels. The gradients have sums of each channel instead of statistics of each
    group."""
    statistics = replace(cost, flops=0, write_bytes=0, family="reduction", access="moments", work=None)
    applied = replace(cost, flops=0, family="pointwise", access="indexed", row=0, work=None)
    factors = (families["rows"]["start_us"] + gpu.kernel_start_us) * 1e-6
    return factors + sum(memory_seconds(each, gpu, machine, families) for each in (statistics, applied))


def recurrent_seconds(cost: Cost, work: Recurrent, gpu: GPU, machine: Machine, fits: Mapping[str, Any]) -> float:
    """Return the seconds of all layers in sequence. The backward pass computes two GEMMs for each."""

    def product(m: int, n: int, k: int) -> float:
        shape, size = Product(1, m, n, k), ELEMENT_BYTES[cost.precision]
        read, written = round((m * k + k * n) * size), round(m * n * size)
        of = replace(cost, flops=2 * m * n * k, read_bytes=read, write_bytes=written, weight_bytes=0, family="gemm")
        return product_seconds(replace(of, work=shape), shape, gpu, machine, fits["gemm"])

    def step(n: int, k: int) -> float:
        depth = k * ELEMENT_BYTES[cost.precision] * fits["recurrent"]["byte_ns"] * 1e-9
        return max(product(batch, n, k), fits["gemm"]["tensor"]["start_us"] * 1e-6 + depth if batch > 1 else 0.0)

    batch, gates = ceil(work.rows / work.steps), work.gates * work.hidden
    pointwise = _gates_seconds(cost, work, batch, gpu, machine, fits)
    steps = work.layers * work.steps
    if work.backward:
        inputs = sum(product(work.rows, width, gates) for width in work.widths)
        weights = sum(product(gates, width + work.output, work.rows) for width in work.widths)
        return work.directions * (inputs + weights + steps * (step(work.output, gates) + pointwise))
    inputs = sum(product(work.rows, gates, width) for width in work.widths)
    return work.directions * (inputs + steps * (step(gates, work.output) + pointwise))


def _gates_seconds(
    cost: Cost, work: Recurrent, batch: int, gpu: GPU, machine: Machine, fits: Mapping[str, Any]
) -> float:
    moved = round(batch * work.hidden * ELEMENT_BYTES[cost.precision])
    gates = Cost(0, (2 * work.gates + 1) * moved, 2 * moved, "pointwise", cost.precision)
    return memory_seconds(gates, gpu, machine, fits["memory"])


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
    tensor = _uses_tensor_units(cost, gpu)
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
    changes = cost.access == "transposed" and _uses_tensor_units(cost, gpu) and not depthwise
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


def _uses_tensor_units(cost: Cost, gpu: GPU) -> bool:
    return gpu.runs_as(cost.precision) not in _SIMT


def _depth_seconds(shape: Product, machine: Machine, fits: Mapping[str, Any]) -> float:
    """Return the seconds that one CTA needs for the whole depth (k), or for a part of it plus the reduction after
    split-K."""
    whole = shape.k * machine.operand_bytes * fits["convolution"]["byte_ns"] * 1e-9
    added = fits["gemm"]["tensor"]["split_us"] * 1e-6
    return min(whole / parts + (parts - 1) * added for parts in (1, 2, 4, 8))
