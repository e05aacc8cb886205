"""Times the product with packed weights for one row: today's, an earlier one, and today's without one of its parts."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

import torch
import triton
import triton.language as tl

from fused import earlier_product
from fused.device_time import kernel_us, sets_for
from tracekit.fuse import weight_only_product as ours
from tracekit.fuse.kernels.weight_only_product import _value

GROUP = 64
_MOST_SETS = 256
"""The weights of a decode step are never in the cache, however small."""
PARTS = {"without dequantization": 1, "without the multiplication": 2, "reads alone": 3}


@dataclass(frozen=True)
class Case:
    columns: int
    inputs: int
    bits: int


@triton.jit
def _part(
    x_ptr, weight_ptr, scale_ptr, out_ptr, columns, magic,
    K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr, PART: tl.constexpr,
    ROWS: tl.constexpr, RUNS: tl.constexpr,
):  # fmt: skip
    """Return the kernel without one of its parts."""
    run_length: tl.constexpr = 128 // BITS
    runs: tl.constexpr = K // run_length
    column = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = column < columns
    word = tl.arange(0, 4)[None, None, :]
    weight_at = weight_ptr + column.to(tl.int64)[None, :, None] * (4 * runs) + word
    scale_at = scale_ptr + column[None, :] * (K // GROUP)
    x_at = x_ptr + word
    total = tl.zeros([RUNS, ROWS], tl.float32)
    for start in range(0, runs, RUNS):
        run = start + tl.arange(0, RUNS)
        fits = (run < runs)[:, None]
        there = fits & inside[None, :]
        words = tl.load(weight_at + run[:, None, None] * 4, mask=there[:, :, None], other=0)
        scale = tl.load(scale_at + run[:, None] * run_length // GROUP, mask=there, other=0.0).to(tl.float32)
        part = tl.zeros([RUNS, ROWS, 4], tl.float32)
        if PART == 3:
            part += words.to(tl.float32, bitcast=True)
        else:
            for i in tl.static_range(32 // BITS):
                at = (run * run_length + 4 * i)[:, None, None]
                if PART == 1:
                    x = tl.load(x_at + at, mask=fits[:, :, None], other=0.0).to(tl.float32)
                    part += words.to(tl.float32, bitcast=True) * x
                else:
                    part += _value(words, magic, i, BITS)
        total += tl.sum(part, axis=2) * scale
    tl.store(out_ptr + column, tl.sum(total, axis=0), mask=inside)


def timed(case: Case, device: str, rate: float, until: float) -> dict[str, Any]:
    """Return microseconds of each variant and its share of a copy's rate, the best launch of ours, and its error."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    weight = torch.randn(case.columns, case.inputs, device=device, dtype=dtype) * case.inputs**-0.5
    x = torch.randn(1, case.inputs, device=device, dtype=dtype)
    packed = ours.pack(weight, case.bits, GROUP)
    sets = _sets((x, *packed, None, case.bits), device)
    moved = ours.moved_bytes(*sets[0])
    tried = {str(launch): _launched(ours, launch, sets, device) for launch in ours.CONFIGS}
    best = min(ours.CONFIGS, key=lambda launch: tried[str(launch)])
    ours.CONFIG = best
    error = _error(ours.fused(*sets[0]), ours.reference(*sets[0]))
    us = {"ours": tried[str(best)]}
    for name, variant in _variants(case, weight, x, best, sets, device).items():
        if monotonic() < until:
            us[name] = variant()
    of_copy = {name: moved / took * 1e6 / rate for name, took in us.items()}
    return {**vars(case), "bytes": moved, "us": us, "of_copy": of_copy, "launch": best, "tried": tried, "error": error}


def _variants(
    case: Case, weight: torch.Tensor, x: torch.Tensor, best: dict[str, int], sets: list[Any], device: str
) -> dict[str, Callable[[], float]]:
    packed = earlier_product.pack(weight, case.bits, GROUP)
    earlier = _sets((x, *packed, case.bits), device)
    variants: dict[str, Callable[[], float]] = {
        "before": lambda: min(_launched(earlier_product, launch, earlier, device) for launch in earlier_product.CONFIGS)
    }
    for name, part in PARTS.items():
        variants[name] = lambda part=part: kernel_us(_without(case, part, best), sets, device)[0]
    wide = _sets((x, weight), device)
    variants["16 bits"] = lambda: kernel_us(torch.nn.functional.linear, wide, device)[0]
    if case.bits == 4 and device == "cuda":
        variants["PyTorch's int4"] = lambda: _library(case, x, device)
    return variants


def _without(case: Case, part: int, launch: dict[str, int]) -> Callable[..., None]:
    warps = min(launch["num_warps"], triton.next_power_of_2(triton.cdiv(case.inputs * case.bits // 128, 32)))
    grid = (triton.cdiv(case.columns, launch["ROWS"]),)

    def run(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, *_: Any) -> None:
        out = torch.empty(case.columns, dtype=x.dtype, device=x.device)
        _part[grid](
            x, packed, scale, out, case.columns, ours._MAGIC, case.inputs, GROUP, case.bits, part,
            ROWS=launch["ROWS"], RUNS=32 * warps, num_warps=warps,
        )  # fmt: skip

    return run


def _library(case: Case, x: torch.Tensor, device: str) -> float:
    shape = (case.columns, case.inputs // 2)
    scales = torch.ones(case.inputs // GROUP, case.columns, 2, dtype=x.dtype, device=device)
    packed = torch.randint(0, 255, shape, dtype=torch.uint8, device=device)
    tiles = torch.ops.aten._convert_weight_to_int4pack(packed, 8)
    multiply = torch.ops.aten._weight_int4pack_mm
    return kernel_us(lambda x, w: multiply(x, w, GROUP, scales), _sets((x, tiles), device), device)[0]


def _launched(kernel: Any, launch: dict[str, int], sets: list[Any], device: str) -> float:
    kernel.CONFIG = launch
    return kernel_us(kernel.fused, sets, device)[0]


def _sets(inputs: tuple[Any, ...], device: str) -> list[tuple[Any, ...]]:
    """Return copies of the inputs that are larger than the cache together."""
    nbytes = sum(each.nbytes for each in inputs if isinstance(each, torch.Tensor))
    copies = range(sets_for(nbytes, device, _MOST_SETS) - 1)
    fresh = [tuple(each.clone() if isinstance(each, torch.Tensor) else each for each in inputs) for _ in copies]
    return [inputs, *fresh]


def _error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((got.double() - wanted.double()).norm() / wanted.double().norm())
