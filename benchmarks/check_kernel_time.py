"""Error of the kernel time model against public measurements.

    python benchmarks/check_kernel_time.py [DIRECTORY]

DIRECTORY holds gemm.parquet, attention_context.parquet, attention_generation.parquet (ai-dynamo/aiconfigurator) and
fp32_kernels.parquet (sitar-lab/NeuSight), and needs pyarrow; by default shared/calibration beside the checkout. A line
is one class of op on one GPU; the constants were fitted on part of these rows, so this is no held-out error.
"""

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from analyzers.costs.call import Attention, Cost, Family, Gemm, Precision
from analyzers.hardware import GPU, find, resolve
from analyzers.kernel_time import estimate_ns

SAMPLE = 400
_SERVED = {"A100-SXM-80": "a100-80gb-sxm", "H100-SXM": "h100-sxm", "H200": "h200", "L40S": "l40s"}
_HALF_BYTES = 2
_FP32_BYTES = 4
_LAUNCH_BOUND = 3
"""Some sources time launches too: rows shorter than this many times the shortest say little of the kernel."""

Row = tuple[Cost, float]
Class = tuple[str, GPU, list[Row]]


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "shared" / "calibration"
    if not folder.is_dir() or not find_spec("pyarrow"):
        print(f"Nothing to check: this needs pyarrow, and measurements in {folder}.")
        return
    print(f"{'op':<24}{'GPU':<16}{'rows':>6}{'mean |error|':>14}{'median ratio':>14}{'90th pct':>10}")
    for name, gpu, rows in classes(folder):
        ratio = np.array([estimate_ns(cost, gpu) / nanoseconds for cost, nanoseconds in rows])
        error = np.abs(ratio - 1)
        numbers = f"{error.mean():>14.1%}{np.median(ratio):>14.2f}{np.quantile(error, 0.9):>10.1%}"
        print(f"{name:<24}{gpu.id:<16}{len(rows):>6}{numbers}")


def classes(folder: Path) -> Iterator[Class]:
    """Each class of op on each GPU, with a sample of its measurements in nanoseconds."""
    gemm = pd.read_parquet(folder / "gemm.parquet")
    for name, precision, size in (("bfloat16", "bf16", 2), ("fp8", "fp8", 1)):
        yield from _products(gemm[gemm["gemm_dtype"] == name], precision, size)
    for file, queries in (("attention_context", "all"), ("attention_generation", "one")):
        yield from _attention(pd.read_parquet(folder / f"{file}.parquet"), queries)
    yield from _fp32(pd.read_parquet(folder / "fp32_kernels.parquet"))


def _products(table: pd.DataFrame, precision: Precision, size: int) -> Iterator[Class]:
    for name, gpu_id in _SERVED.items():
        gpu = find(gpu_id)
        rows = table[table["gpu"] == name]
        m, n, k = (rows[side].astype("float64") for side in "mnk")
        cold = rows[(m * k + n * k + m * n) * size > 2 * gpu.l2_bytes]
        parts = {"one row": cold["m"] == 1, "to 64 rows": cold["m"].between(2, 64), "more": cold["m"] > 64}
        for label, mask in parts.items():
            yield from _class(f"gemm {precision} {label}", gpu, cold[mask], lambda r: _product(r, precision, size))


def _product(row: pd.Series, precision: Precision, size: int, batch: int = 1) -> Cost:
    m, n, k = int(row["m"]), int(row["n"]), int(row["k"])
    written = _FP32_BYTES if precision == "fp32" else _HALF_BYTES
    read = batch * (m * k + n * k) * size
    shape = Gemm(batch, m, n, k)
    return Cost(2 * batch * m * n * k, read, batch * m * n * written, "gemm", precision, n * k * size, shape)


def _attention(table: pd.DataFrame, queries: str) -> Iterator[Class]:
    windows = table["window_size"].isna() | (table["window_size"] == 0)
    flash = table["kernel_source"].str.fullmatch(r"vllm_flash_attn(_fa[23])?")
    kept = table[windows & flash & (table["kv_cache_dtype"] == "bfloat16") & table["head_dim"].isin([64, 128])]
    label = "attention prefill" if queries == "all" else "attention decode"
    for name, gpu_id in _SERVED.items():
        rows = _long(kept[kept["gpu"] == name])
        yield from _class(label, find(gpu_id), rows, lambda r: _attention_cost(r, queries))


def _attention_cost(row: pd.Series, queries: str) -> Cost:
    batch, heads, kv_heads, head_dim = (
        int(row[name]) for name in ("batch_size", "num_heads", "num_key_value_heads", "head_dim")
    )
    keys = int(row["isl"]) if queries == "all" else int(row["step"]) + 1
    asked = keys if queries == "all" else 1
    flops = 4 * batch * heads * asked * keys * head_dim // (2 if asked == keys else 1)
    written = batch * heads * asked * head_dim * _HALF_BYTES
    read = written + 2 * batch * kv_heads * keys * head_dim * _HALF_BYTES
    shape = Attention(batch, heads, kv_heads, asked, keys, head_dim, True)
    return Cost(flops, read, written, "attention", "bf16", 0, shape)


def _fp32(table: pd.DataFrame) -> Iterator[Class]:
    table = table.rename(columns={"M": "m", "N": "n", "K": "k"})
    families: dict[str, tuple[Family, int]] = {"add": ("pointwise", 2), "ln": ("norm", 1), "softmax": ("softmax", 1)}
    for (op, name), rows in table.groupby(["op", "gpu"]):
        gpu = resolve(name)
        if gpu is None:
            continue
        long = _long(rows)
        if op in families:
            yield from _class(f"{op} fp32", gpu, long, lambda r, op=op: _moved(r, *families[op]))
        else:
            yield from _class(f"{op} fp32", gpu, long, lambda r: _product(r, "fp32", _FP32_BYTES, int(r["B"])))


def _moved(row: pd.Series, family: Family, inputs: int) -> Cost:
    size = int(row["B"]) * int(row["H"]) * _FP32_BYTES
    return Cost(0, inputs * size, size, family, "fp32")


def _long(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["latency_ms"] > _LAUNCH_BOUND * rows["latency_ms"].min()]


def _class(label: str, gpu: GPU, rows: pd.DataFrame, cost_of: Callable[[pd.Series], Cost]) -> Iterator[Class]:
    if len(rows):
        sample = rows.sample(min(SAMPLE, len(rows)), random_state=0)
        yield label, gpu, [(cost_of(row), row["latency_ms"] * 1e6) for _, row in sample.iterrows()]


if __name__ == "__main__":
    main()
