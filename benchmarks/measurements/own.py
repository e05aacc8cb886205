"""Kernel times of our H200 (data/h200_kernels.csv), and collectives between H200s (data/h200_collectives.csv)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from msgspec.structs import replace

from tracekit.analyzers.cost import GPU, Attention, Message, Product, cost_of_signature
from tracekit.analyzers.cost.hardware import find
from tracekit.analyzers.cost.ops.costs import Cost
from tracekit.analyzers.cost.time.links import Between

Source = Literal["own", "aiconfigurator", "neusight"]


@dataclass(frozen=True)
class Row:
    source: Source
    family: str
    """Class of op for which errors are stated."""
    label: str
    """Name of the measured op in its source."""
    gpu: GPU
    cost: Cost
    nanoseconds: float


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


TYPES = {
    "bf16": "c10::BFloat16",
    "fp16": "c10::Half",
    "fp32": "float",
    "fp64": "double",
    "e4m3": "c10::Float8_e4m3fn",
    "i64": "long int",
    "u64": "long unsigned int",
    "i32": "int",
    "i8": "signed char",
    "u8": "unsigned char",
    "bool": "bool",
}
_SHORT = {name: short for short, name in TYPES.items()}
_UNKNOWN = "?"
Input = tuple[Any, str, str, list[int]]
"""Shape, type, value, strides."""


def written(shapes: list[Any], types: list[str], values: list[str], strides: list[list[int]]) -> str:
    """Return one line with the inputs of a call as torch's profiler records them."""
    count = len(shapes)
    values, strides = values + [""] * (count - len(values)), strides + [[]] * (count - len(strides))
    tokens = [_token(*inputs) for inputs in zip(shapes, types, values, strides, strict=False)]
    kept = len(tokens)
    while kept and tokens[kept - 1] == "-":
        kept -= 1
    return " ".join(tokens[:kept] + [f"+{count - kept}"] * (kept < count))


def read(text: str) -> tuple[str, str, str, str]:
    """Return shapes, types, values and strides as the JSON text of a trace."""
    inputs = [tensor for token in text.split() for tensor in _inputs(token)]
    columns = zip(*inputs, strict=True) if inputs else [[]] * 4
    shapes, types, values, strides = (json.dumps(list(column), separators=(",", ":")) for column in columns)
    return shapes, types, values, strides


def contiguous(shape: list[int]) -> list[int]:
    """Return the strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


def _token(shape: Any, kind: str, value: str, strides: list[int]) -> str:
    if kind in _SHORT:
        dense = all(a == b or n == 1 for a, b, n in zip(strides, contiguous(shape), shape, strict=False))
        return f"{_SHORT[kind]}[{_joined(shape)}]" + ("" if dense else f"@{_joined(strides)}")
    if kind.startswith("TensorList"):
        return "{" + ";".join(_joined(one) for one in shape) + "}"
    return value.replace(" ", "") or (_UNKNOWN if kind else "-")


def _joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")] if text else []


def _inputs(token: str) -> list[Input]:
    if token.startswith("+"):
        return [([], "", "", [])] * int(token[1:])
    if token.startswith("{"):
        shapes = [_numbers(one) for one in token[1:-1].split(";")] if len(token) > 2 else []
        return [(shapes, "TensorList", "", [])]
    kind, bracket, rest = token.partition("[")
    if bracket and kind in TYPES:
        shape, _, strides = rest.partition("]")
        numbers = _numbers(shape)
        return [(numbers, TYPES[kind], "", _numbers(strides[1:]) or contiguous(numbers))]
    if token == "-":
        return [([], "", "", [])]
    return [([], "ScalarList" if token.startswith("[") else "Scalar", "" if token == _UNKNOWN else token, [])]


COLLECTIVES = Path(__file__).parents[1] / "data" / "h200_collectives.csv"
BETWEEN: dict[str, Between] = {"direct": "nvlink", "no-p2p": "host"}
TOLD_FROM = 1 << 20
"""Bytes from which a call takes longer than the host needs to issue it."""
_ISSUED_TO = 1 << 16


def collectives_table() -> pd.DataFrame:
    """The file's rows: machine, link, collective, ranks, bytes (of a rank's largest buffer), us (of a call)."""
    return pd.read_csv(COLLECTIVES)


def collectives() -> pd.DataFrame:
    """Collectives between ranks, with `between` and `message`."""
    rows = collectives_table()
    rows = rows[rows["collective"] != "copy"]
    calls = zip(rows["collective"], rows["bytes"], rows["ranks"], strict=True)
    messages = pd.Series([Message(*call) for call in calls], index=rows.index, dtype=object)
    return rows.assign(between=rows["link"].map(BETWEEN), message=messages)


def copies() -> pd.DataFrame:
    """Return copies between GPUs that take longer than the host needs to issue them: bytes and us."""
    rows = collectives_table()
    return rows[(rows["collective"] == "copy") & (rows["bytes"] >= 4 * TOLD_FROM)]


def issue_us(rows: pd.DataFrame) -> float:
    """Return the host time of a call, estimated from the shortest messages."""
    return float(rows["us"][rows["bytes"] <= _ISSUED_TO].median())
