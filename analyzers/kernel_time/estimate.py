"""Modelled time of an op's kernels on a GPU: one model a family, all bounded below by the roofline."""

import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from analyzers.costs.call import Attention, Cost, Gemm
from analyzers.hardware import GPU
from analyzers.kernel_time.attention import attention_seconds, backend
from analyzers.kernel_time.gemm import Machine, Products, gemm_seconds
from analyzers.kernel_time.memory_bound import memory_seconds

_OPERAND_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "int4": 0.5}
_SIMT = ("fp64", "fp32")


@lru_cache(maxsize=1 << 16)
def estimate_ns(cost: Cost, gpu: GPU) -> float:
    """Nanoseconds on the device, launch gaps not included; never below the roofline."""
    return max(_model_seconds(cost, gpu), roofline_seconds(cost, gpu)) * 1e9


def roofline_seconds(cost: Cost, gpu: GPU) -> float:
    """What no kernel can beat: FLOPs at the peak, and bytes at the bandwidth where the L2 cannot hold them."""
    compute = cost.flops / gpu.peak_flops(cost.precision)
    return max(compute, cost.bytes / gpu.bandwidth if cost.bytes > gpu.l2_bytes else 0.0)


@cache
def constants() -> dict[str, Any]:
    """constants.toml: fitted numbers with their source."""
    return tomllib.loads((Path(__file__).parent / "constants.toml").read_text(encoding="utf-8"))


def machine(gpu: GPU, precision: str) -> Machine:
    return Machine(
        flops=gpu.sustained_flops(precision),
        bandwidth=gpu.bandwidth * gpu.copy_efficiency,
        sms=gpu.sms,
        clock_hz=gpu.clock_ghz * 1e9,
        operand_bytes=_OPERAND_BYTES[precision],
    )


def _model_seconds(cost: Cost, gpu: GPU) -> float:
    if cost.flops and isinstance(cost.shape, Attention):
        fit = constants()["attention"][backend(cost, gpu)]
        return attention_seconds(cost, cost.shape, machine(gpu, cost.precision), fit)
    if cost.flops and isinstance(cost.shape, Gemm):
        return _product_seconds(cost, cost.shape, gpu)
    families = constants()["memory"]
    fit = families.get(cost.family, families["other"])
    return max(
        memory_seconds(cost, gpu, machine(gpu, cost.precision), fit, constants()["l2"]),
        cost.flops / gpu.sustained_flops(cost.precision),
    )


def _product_seconds(cost: Cost, shape: Gemm, gpu: GPU) -> float:
    units = machine(gpu, cost.precision)
    if min(shape.m, shape.n) == 1:
        fit = constants()["gemv"]
        return float(fit["start_us"] * 1e-6 + cost.bytes / (units.bandwidth * fit["stream"]))
    fit = constants()["gemm"]["simt" if gpu.runs_as(cost.precision) in _SIMT else "tensor"]
    products = Products(shape.batch, shape.m, shape.n, shape.k, cost.bytes)
    return float(gemm_seconds(products, units, fit))
