"""A trace of one op that launches one kernel: the smallest that every command accepts."""

import json
from pathlib import Path


def write_tiny_trace(path: Path, kernel_us: int = 4) -> Path:
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 0, "dur": 9, "args": {}}
    launch = op | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 2, "dur": 3, "args": {"correlation": 1}}
    kernel = {"ph": "X", "cat": "kernel", "name": "add", "pid": 0, "tid": 7, "ts": 6, "dur": kernel_us}
    kernel["args"] = {"device": 0, "stream": 7, "correlation": 1}
    trace = {"deviceProperties": [{"id": 0, "name": "Tesla T4"}], "traceEvents": [op, launch, kernel]}
    path.write_text(json.dumps(trace))
    return path
