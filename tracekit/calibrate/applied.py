"""A GPU, and the host time of ops, as a calibration of this machine corrects them."""

from collections.abc import Mapping

from msgspec.structs import replace

from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import ELEMENT_BYTES, GPU, LAUNCH_CALL, Cost, Precision, Product, estimate_ns
from tracekit.analyzers.predict import HostCosts, assumed, calibrated
from tracekit.calibrate.device_probes import COPY_BYTES, SIDE
from tracekit.calibrate.files import Calibration, load

_PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")
_CORRECTIONS = Interval(0.5, 1.0, 1.5)
"""Limits of a correction. A rate outside them shows that another program used the GPU, not how fast the GPU is."""


def host_costs(calibration: Calibration | None, gpu: GPU) -> HostCosts:
    """Return the host time of ops: calibrated if the calibration is of this GPU, else assumed."""
    if calibration is None or calibration.gpu != gpu.id:
        return assumed(gpu)
    probes = {name: Interval(*times) for name, times in calibration.host_us.items()}
    return calibrated(probes, calibration.measured_at[:10]) or assumed(gpu)


def calibrated_gpu(gpu: GPU) -> tuple[GPU, HostCosts]:
    """Return the GPU and the host time of ops, as far as this machine was calibrated for the GPU."""
    calibration = load(gpu.id)
    return as_calibrated(gpu, calibration), host_costs(calibration, gpu)


def as_calibrated(gpu: GPU, calibration: Calibration | None) -> GPU:
    """Return the GPU with the rates that were measured on this machine.

    The constants of the kernel model were fitted with the catalogue's rates. These rates are therefore multiplied by
    the ratio of measured to modelled throughput of the same GEMMs and copies.
    """
    if calibration is None or calibration.gpu != gpu.id:
        return gpu
    rates = calibration.sustained_tflops
    sustained: dict[str, float] = {
        precision: gpu.sustained_flops(precision) / gpu.peak_flops(precision) * _correction(gpu, precision, rates)
        for precision in _PRECISIONS
        if precision in gpu.peaks_tflops
    }
    return replace(
        gpu,
        sustained={**gpu.sustained, **sustained},
        copy_efficiency=gpu.copy_efficiency * _copy_correction(gpu, calibration.copies_gb_per_s),
        launch_us=_launch_us(calibration, gpu),
    )


def _launch_us(calibration: Calibration, gpu: GPU) -> float:
    """Return the launch latency in microseconds, with the call itself, which is assumed to be LAUNCH_CALL of it."""
    return calibration.launch_us / (1 - LAUNCH_CALL) if calibration.launch_us else gpu.launch_us


def _correction(gpu: GPU, precision: Precision, rates: Mapping[str, float]) -> float:
    if precision not in rates:
        return 1.0
    return _limited(rates[precision] * 1e12 * estimate_ns(_product(precision), gpu) / 1e9 / (2 * SIDE**3))


def _copy_correction(gpu: GPU, rates: Mapping[str, float]) -> float:
    if "d2d" not in rates:
        return 1.0
    return _limited(rates["d2d"] * estimate_ns(_copy(), gpu) / (2 * COPY_BYTES))


def _limited(ratio: float) -> float:
    return min(max(ratio, _CORRECTIONS.low), _CORRECTIONS.high)


def _product(precision: Precision) -> Cost:
    matrix = round(SIDE * SIDE * ELEMENT_BYTES[precision])
    return Cost(2 * SIDE**3, 2 * matrix, matrix, "gemm", precision, matrix, Product(1, SIDE, SIDE, SIDE))


def _copy() -> Cost:
    return Cost(0, COPY_BYTES, COPY_BYTES, "copy", "fp32")
