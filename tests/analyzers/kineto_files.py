"""Small Kineto traces, written to files as profilers write them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd

from tracekit.analyzers.trace import Trace, load

TRACES = [
    "a100_resnet-ddp_nccl",
    "a100_triton",
    "cpu_only",
    "h100_bert-small",
    "h100_qwen1.5-0.5b",
    "h200_gpt2_fp32-eager_prefill",
    "h200_llama-1b_bf16_decode",
    "mi300_bert-small",
    "mi300_torch-compile",
    "ranks/rank-0",
    "ranks/rank-1",
    "v100_resnet-ddp_float-ts",
]
SMALL = ["a100_triton", "cpu_only", "h100_bert-small", "mi300_torch-compile"]


def shared_trace(shared: Path, name: str) -> Path:
    return shared / "traces" / f"{name}.json.gz"


def shared_text(shared: Path, name: str) -> bytes:
    return gzip.decompress(shared_trace(shared, name).read_bytes())


def op(name: str = "aten::add", ts: float = 10.0, dur: float = 5.0, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {}} | more


def kernel(name: str = "gemm", ts: float = 12.0, dur: float = 3.0, stream: int = 7, **args: Any) -> dict[str, Any]:
    args = {"device": 0, "stream": stream, "correlation": 1, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args}


def load_text(folder: Path, text: str | bytes) -> Trace:
    path = folder / "trace.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load(path)


def load_events(folder: Path, *events: dict[str, Any], **keys: Any) -> Trace:
    return load_text(folder, json.dumps({"schemaVersion": 1, **keys, "traceEvents": list(events)}))


def codes(trace: Trace) -> dict[str, int]:
    return dict(zip(trace.problems["code"], trace.problems["count"], strict=True))


def damage(trace: Trace) -> dict[str, int]:
    """Return the problems, without those that every small trace has."""
    return {code: count for code, count in codes(trace).items() if not code.startswith("no-")}


def assert_same(one: Trace, other: Trace) -> None:
    """Assert that the tables are equal, whatever the numbers of their strings."""
    for name in ("host", "device", "problems"):
        first, second = (_plain(getattr(trace, name)) for trace in (one, other))
        pd.testing.assert_frame_equal(first, second)
    assert one.metadata == other.metadata


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype({name: object for name, dtype in table.dtypes.items() if dtype == "category"})
