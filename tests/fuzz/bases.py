"""Small sound files of every format, whose events have distinct names."""

import csv
import importlib.util
import io
import json
import sqlite3
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

KERNEL, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
EVENTS = 24


def kineto() -> bytes:
    """A step of ops, each with its launch and its kernel, and metadata on both sides of the events."""
    events = []
    for i in range(EVENTS):
        host = {"ph": "X", "pid": 1, "tid": 1}
        args = {"External id": i, "Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]}
        events.append({**host, "cat": "cpu_op", "name": f"aten::op{i}", "ts": 10 * i, "dur": 9, "args": args})
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": i + 1, "External id": i}}
        events.append({**host, **launch, "ts": 10 * i + 2, "dur": 3})
        where = {"device": 0, "stream": 7, "correlation": i + 1, "grid": [8, 1, 1], "block": [128, 1, 1]}
        kernel = {"ph": "X", "cat": "kernel", "name": f"k{i}<{{x}}>", "pid": 0, "tid": 7, "ts": 10 * i + 300, "dur": 8}
        events.append({**kernel, "args": {**where, "est. achieved occupancy %": 50}})
    device = {"id": 0, "name": "NVIDIA H200", "numSms": 132, "totalGlobalMem": 1 << 37}
    text = ",\n  ".join(json.dumps(event) for event in events)
    head = f'{{"schemaVersion": 1, "deviceProperties": [{json.dumps(device)}],\n"traceEvents": [\n  '
    return f'{head}{text}\n], "traceName": "t"}}'.encode()


def perfetto() -> bytes:
    """The events of `kineto` as PyTorch writes them for Perfetto."""
    events = json.loads(kineto())["traceEvents"]
    for event in events:
        if event["cat"] == "kernel":
            event["args"]["registers per thread"] = 32
    return _writer("perfetto_files").as_pytorch(events).serialize()


def proton() -> bytes:
    """A timeline of Proton with two streams and nested scopes."""
    write = _writer("proton_files")
    events = [
        write.event(f"k{i}", 1000 * i, 800, f"step_{i // 8}", f"layer_{i % 4}", stream=7 + i % 2) for i in range(EVENTS)
    ]
    return write.timeline(*events)


def proton_tree() -> bytes:
    """A tree of Proton: steps with layers of kernels."""
    write = _writer("proton_files")
    kernels = [write.kernel(f"k{i}", 1000 + i, 1 + i % 3) for i in range(EVENTS)]
    layers = [write.scope(f"layer_{i}", *kernels[i::4]) for i in range(4)]
    return write.tree(*(write.scope(f"step_{step}", *layers, tokens=1024) for step in range(3)))


@cache
def _writer(name: str) -> ModuleType:
    """Import a module of tests/analyzers, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "analyzers" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def nsys() -> bytes:
    """Launched kernels inside ranges, as an SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.sqlite"
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        connection.execute(f'CREATE TABLE {RUNTIME} (start, "end", globalTid, correlationId, nameId)')
        connection.execute(
            f'CREATE TABLE {KERNEL} (start, "end", deviceId, streamId, correlationId, globalPid, demangledName, gridX)'
        )
        connection.execute('CREATE TABLE NVTX_EVENTS (start, "end", eventType, globalTid, text, domainId)')
        connection.execute("INSERT INTO StringIds VALUES (0, 'cudaLaunchKernel_v7000')")
        for i in range(EVENTS):
            at = 1000 * i + 5000
            connection.execute("INSERT INTO StringIds VALUES (?, ?)", [i + 1, f"k{i}"])
            connection.execute(f"INSERT INTO {RUNTIME} VALUES (?, ?, ?, ?, 0)", [at, at + 50, 7 << 24 | 7, i])
            kernel = [at + 200, at + 700, 0, 7, i, 7 << 24, i + 1, 8]
            connection.execute(f"INSERT INTO {KERNEL} VALUES ({', '.join('?' * 8)})", kernel)
            range_ = [at - 10, at + 60, 59, 7 << 24 | 7, f"range {i}", 0]
            connection.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", range_)
        connection.commit()
        connection.close()
        return path.read_bytes()


def ncu() -> bytes:
    """A raw page of Nsight Compute."""
    identity = ["ID", "Process ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC"]
    metrics = {
        "gpu__time_duration.sum": "ns",
        "dram__bytes.sum": "byte",
        "sm__warps_active.avg.pct_of_peak_sustained_active": "%",
    }
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*identity, *metrics])
    writer.writerow([""] * len(identity) + list(metrics.values()))
    for i in range(EVENTS):
        writer.writerow([i, 7, f"k{i}", 1, 7, "(128, 1, 1)", "(8, 1, 1)", 0, "9.0", 1000 + i, "4,096", 50])
    return b"==PROF== Connected\n" + out.getvalue().encode()
