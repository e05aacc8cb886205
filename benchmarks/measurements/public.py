"""Public kernel times: ai-dynamo/aiconfigurator (products and attention, served by TensorRT-LLM and vLLM; Apache-2.0)
and sitar-lab/NeuSight (fp32; MIT), as Parquet files in shared/calibration.

Products whose matrices fit twice into the L2 are left out, and decode attention whose keys and values do: they were
measured hot. Prefill writes its keys and values into a cache, which is timed with it. Some sources time launches,
too: rows shorter than three times the shortest say little of the kernel, and of NeuSight's memory-bound ops the launch
is taken off.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from benchmarks.measurements.own import Row
from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.cost import GPU, Attention, Cost, Family, Precision, Product
from tracekit.analyzers.cost.hardware import find, resolve
from tracekit.analyzers.cost.ops.work import Backend

_SERVED = {"A100-SXM-80": "a100-80gb-sxm", "H100-SXM": "h100-sxm", "H200": "h200", "L40S": "l40s"}
_SIZES = {"bfloat16": ("bf16", 2), "fp8": ("fp8", 1)}
_HALF_BYTES, _FP32_BYTES = 2, 4
_LAUNCH_BOUND = 3
_STREAM_BOUND = 1.5
_LAUNCH = 0.6
"""Part of the shortest call of an op that is over when its kernel starts: what sums of 60 MB and more take on T4, V100
and A100 beyond their bytes (15, 17 and 16 of 25, 32 and 26 us)."""
_SHORTEST_PROMPT = 16
_FAMILIES: dict[str, tuple[Family, int]] = {"add": ("pointwise", 2), "ln": ("norm", 1), "softmax": ("softmax", 1)}


def folder(shared: Path) -> Path:
    """Return the folder of the files. Raises TracekitError if it does not exist."""
    folder = shared / "calibration"
    if not folder.is_dir():
        raise TracekitError(f"{folder} does not exist.", hint="Give the folder of the public measurements: --shared.")
    if not find_spec("pyarrow"):
        raise TracekitError("The public measurements are Parquet files.", hint="pip install pyarrow")
    return folder


def rows(shared: Path, sample: int, seed: int) -> Iterator[Row]:
    """Return up to `sample` rows of each class of op on each GPU."""
    files = folder(shared)
    yield from products(files, sample, seed)
    yield from attentions(files, sample, seed)
    yield from fp32(files, sample, seed)


def products(files: Path, sample: int, seed: int) -> Iterator[Row]:
    table = pd.read_parquet(files / "gemm.parquet")
    for name, (precision, size) in _SIZES.items():
        for gpu_name, gpu in _served():
            rows = table[(table["gemm_dtype"] == name) & (table["gpu"] == gpu_name)]
            m, n, k = (rows[side].astype("float64") for side in "mnk")
            cold = rows[(m * k + n * k + m * n) * size > 2 * gpu.l2_bytes]
            bins = {"one row": cold["m"] == 1, "to 64 rows": cold["m"].between(2, 64), "more": cold["m"] > 64}
            for label, mask in bins.items():
                for row in _sampled(cold[mask], sample, seed):
                    cost = _product(row, precision, size)
                    yield Row("aiconfigurator", f"gemm {precision}", label, gpu, cost, row["latency_ms"] * 1e6)


def attentions(files: Path, sample: int, seed: int) -> Iterator[Row]:
    for file, label in (("attention_context", "prefill"), ("attention_generation", "decode")):
        table = pd.read_parquet(files / f"{file}.parquet")
        windows = table["window_size"].isna() | (table["window_size"] == 0)
        flash = table["kernel_source"].str.fullmatch(r"vllm_flash_attn(_fa[23])?")
        table = table[windows & flash & (table["kv_cache_dtype"] == "bfloat16") & table["head_dim"].isin([64, 128])]
        for gpu_name, gpu in _served():
            rows = _long(table[table["gpu"] == gpu_name])
            if label == "prefill":
                rows = rows[rows["isl"] >= _SHORTEST_PROMPT]
            else:
                rows = rows[_cached_bytes(rows) > 2 * gpu.l2_bytes]
            for row in _sampled(rows, sample, seed):
                cost = _attention(row, label)
                yield Row("aiconfigurator", f"attention {label}", label, gpu, cost, row["latency_ms"] * 1e6)


def fp32(files: Path, sample: int, seed: int) -> Iterator[Row]:
    table = pd.read_parquet(files / "fp32_kernels.parquet").rename(columns={"M": "m", "N": "n", "K": "k"})
    shortest = table.groupby("gpu")["latency_ms"].min()
    for (op, name), rows in table.groupby(["op", "gpu"]):
        gpu = resolve(str(name))
        if gpu is None:
            continue
        launch = _LAUNCH * (rows["latency_ms"].min() if op in _FAMILIES else shortest[name])
        kept = _streams(rows, str(op), gpu) if op in _FAMILIES else _long(rows)
        for row in _sampled(kept, sample, seed):
            cost = _moved(row, *_FAMILIES[op]) if op in _FAMILIES else _product(row, "fp32", _FP32_BYTES, int(row["B"]))
            family = _FAMILIES[op][0] if op in _FAMILIES else "gemm fp32"
            yield Row("neusight", family, str(op), gpu, cost, (row["latency_ms"] - launch) * 1e6)


def _served() -> Iterator[tuple[str, GPU]]:
    for name, gpu_id in _SERVED.items():
        yield name, find(gpu_id)


def _sampled(rows: pd.DataFrame, sample: int, seed: int) -> Iterator[pd.Series]:
    chosen = rows.sample(min(sample, len(rows)), random_state=seed)
    for _, row in chosen.iterrows():
        yield row


def _long(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["latency_ms"] > _LAUNCH_BOUND * rows["latency_ms"].min()]


def _streams(rows: pd.DataFrame, op: str, gpu: GPU) -> pd.DataFrame:
    """Select long calls by their bytes. A selection by time would keep the slow ones among the short."""
    size = rows["B"] * rows["H"] * _FP32_BYTES * (_FAMILIES[op][1] + 1)
    return rows[size / gpu.bandwidth * 1e3 > _STREAM_BOUND * rows["latency_ms"].min()]


def _product(row: pd.Series, precision: Precision, size: int, batch: int = 1) -> Cost:
    m, n, k = int(row["m"]), int(row["n"]), int(row["k"])
    written = _FP32_BYTES if precision == "fp32" else _HALF_BYTES
    read = batch * (m * k + n * k) * size
    weight = n * k * size if batch == 1 else 0
    return Cost(
        2 * batch * m * n * k,
        read,
        batch * m * n * written,
        "gemm",
        precision,
        weight,
        Product(batch, m, n, k, weight="b" if batch == 1 else ""),
    )


def _attention(row: pd.Series, label: str) -> Cost:
    names = ("batch_size", "num_heads", "num_key_value_heads", "head_dim")
    batch, heads, kv_heads, head_dim = (int(row[name]) for name in names)
    keys = int(row["isl"]) if label == "prefill" else int(row["step"]) + 1
    asked = keys if label == "prefill" else 1
    flops = 4 * batch * heads * asked * keys * head_dim // (2 if asked == keys else 1)
    written = batch * heads * asked * head_dim * _HALF_BYTES
    cached = 2 * batch * kv_heads * keys * head_dim * _HALF_BYTES
    read = written + cached
    if label == "prefill":
        read, written = read + cached, written + cached
    backend: Backend = "flash3" if row["gpu"].startswith("H") else "flash"
    shape = Attention(batch, heads, kv_heads, asked, keys, head_dim, True, backend, packed=True)
    return Cost(flops, read, written, "attention", "bf16", 0, shape)


def _cached_bytes(rows: pd.DataFrame) -> "pd.Series[float]":
    sizes = rows[["batch_size", "num_key_value_heads", "step", "head_dim"]].astype("float64")
    return 2 * _HALF_BYTES * sizes.prod(axis=1)


def _moved(row: pd.Series, family: Family, inputs: int) -> Cost:
    size = int(row["B"]) * int(row["H"]) * _FP32_BYTES
    return Cost(0, inputs * size, size, family, "fp32", row=0 if family == "pointwise" else int(row["H"]))
