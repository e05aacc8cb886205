"""Our own kernel times of an H200: benchmarks/data/h200_kernels.csv, made by measure_kernels.py."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

from measurements.row import Row
from measurements.signatures import TYPES, read
from tracekit.analyzers.cost import Attention, Product, cost_of_signature
from tracekit.analyzers.cost.hardware import find
from tracekit.analyzers.cost.ops.costs import Cost

FILE = Path(__file__).parents[1] / "data" / "h200_kernels.csv"
SEQUENCES = FILE.with_name("h100_sequences.csv")
"""Scans, batch norms in training and recurrent layers of an H100."""
NAIVE = ("int8_weight",)
"""Kernels that are not tuned: on a GPU, aten::_weight_int8pack_mm takes up to 80 times as long as its bytes."""
_LINKS = ("h2d_pinned", "h2d_pageable", "d2h_pinned", "d2h_pageable")
_AS_CLASS = {
    ("copy", "joined"): "linear",
    ("copy", "random"): "linear",
    ("copy", "interleaved"): "indexed",
    ("copy", "cast"): "indexed",
    ("gather", "put"): "scattered",
    ("gather", "set"): "scattered",
}
"""Kernels that the model distinguishes within a class of op."""
_SMALL = 2 << 20
_FROM_MEMORY = ("embedding", "optimizer")


def table(file: Path = FILE) -> pd.DataFrame:
    """The file's rows; times in microseconds, `cold` after the L2 was flushed, `warm` when run again."""
    return pd.read_csv(file, keep_default_na=False, dtype={"cold_us": float, "warm_us": float})


def rows(file: Path = FILE, gpu: str = "h200") -> Iterator[Row]:
    """Yield each op call with its time inside a model."""
    for label, _, cost, nanoseconds in calls(file):
        yield Row("own", _family(cost), label, find(gpu), cost, nanoseconds)


def calls(file: Path) -> Iterator[tuple[str, str, Cost, float]]:
    """Yield label, op, cost, and nanoseconds inside a model of each op call of a file of measure_kernels.py."""
    for label, op, inputs, elements, cold, warm in table(file).iloc[:, :6].itertuples(index=False):
        cost = None if label in _LINKS else cost_of(label, op, inputs, elements)
        if cost is not None:
            yield label, op, cost, _in_a_model(cost, cold, warm) * 1e3


def cost_of(label: str, op: str, inputs: str, elements: str) -> Cost | None:
    shapes, types, values, strides = read(inputs)
    cost = cost_of_signature(f"aten::{op}", shapes, types, values, TYPES.get(elements), None, strides)
    if cost is not None and "tf32" in label:
        return replace(cost, precision="tf32")
    return cost


def links() -> pd.DataFrame:
    """Copies between host and device: label, bytes, device time and wall time in microseconds."""
    copies = table()
    copies = copies[copies["label"].isin(_LINKS)]
    size = copies["inputs"].str.extract(r"\[(\d+)\]")[0].astype(int)
    return copies.assign(bytes=size)[["label", "bytes", "cold_us", "warm_us", "wall_us"]].astype({"wall_us": float})


def _in_a_model(cost: Cost, cold: float, warm: float) -> float:
    """Weights and cached keys are cold; GEMMs, attention and small kernels find their other inputs in the L2. Of
    what a large memory-bound kernel reads, the one before left a part there: the geometric mean."""
    if cost.weight_bytes or _reads_a_cache(cost) or cost.family in _FROM_MEMORY:
        return cold
    return warm if isinstance(cost.work, Attention | Product) or cost.bytes < _SMALL else (cold * warm) ** 0.5


def _reads_a_cache(cost: Cost) -> bool:
    """Return whether it is attention with fewer queries than keys, or a product of unfused attention."""
    if isinstance(cost.work, Attention):
        return cost.work.queries < cost.work.keys
    return isinstance(cost.work, Product) and cost.work.groups > 1 and cost.work.m == 1


def _family(cost: Cost) -> str:
    if cost.family == "gemm":
        return f"gemm {cost.precision}"
    if cost.family == "attention":
        return "attention"
    walk = cost.access if cost.family != "convolution" else "linear"
    walk = _AS_CLASS.get((cost.family, walk), walk)
    return cost.family if walk == "linear" else f"{cost.family}, {walk}"
