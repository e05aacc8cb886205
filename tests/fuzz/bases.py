"""A small sound value of every format, as a tree of dicts, lists and scalars, and how it is written as bytes."""

import csv
import gzip
import importlib.util
import io
import json
import math
import pickle
import sqlite3
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

KERNEL, RUNTIME, RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
EVENTS = 24
EXECUTED = ["pow", "mean", "add", "rsqrt", "mul", "mul", "silu", "view", "mm", "add", "empty", "exp"]
_MB = 1 << 20


def kineto() -> Any:
    """Two steps of ops, each with its launch and its kernel, and metadata on both sides of the events."""
    events = []
    for step in range(2):
        events.append(_host("user_annotation", f"ProfilerStep#{step}", 120 * step - 1, 119))
    for i in range(EVENTS):
        shapes = {"Record function id": i + 10, "Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]}
        events.append(_host("cpu_op", f"aten::op{i}", 10 * i, 9, **{"External id": i}, **shapes))
        events.append(_host("cuda_runtime", "cudaLaunchKernel", 10 * i + 2, 3, correlation=i + 1, **{"External id": i}))
        events.append(_kernel(f"k{i}<{{x}}>", 10 * i + 4, 8, i + 1))
    device = {"id": 0, "name": "NVIDIA H200", "numSms": 132, "totalGlobalMem": 1 << 37}
    return {"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events, "traceName": "t"}


def _host(category: str, name: str, at: float, us: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": us, "args": args}


def _kernel(name: str, at: float, us: float, correlation: int, **more: Any) -> dict[str, Any]:
    where = {"device": 0, "stream": 7, "correlation": correlation, "grid": [8, 1, 1], "block": [128, 1, 1]}
    args = {**where, "registers per thread": 32, "est. achieved occupancy %": 50, **more}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": us, "args": args}


def rank(number: int, ranks: int = 2) -> Any:
    """Two steps of a rank, each with a kernel and a collective."""
    trace = {**kineto(), "traceEvents": []}
    trace["distributedInfo"] = {"backend": "nccl", "rank": number, "world_size": ranks}
    sent = {"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": ranks}
    sent |= {
        "dtype": "Float",
        "Process Group Name": "0",
        "Process Group Ranks": f"[{', '.join(map(str, range(ranks)))}]",
    }
    for step in range(2):
        at, id_ = 1000 * step, 10 * step
        trace["traceEvents"] += [
            _host("user_annotation", f"ProfilerStep#{step}", at, 900),
            _host("cpu_op", "aten::mm", at + 1, 9, **{"External id": id_, "Input Dims": [[8, 16], [16, 4]]}),
            _host("cuda_runtime", "cudaLaunchKernel", at + 2, 3, correlation=id_ + 1, **{"External id": id_}),
            _kernel("sgemm", at + 10, 100 * (number + 1), id_ + 1),
            _host("cpu_op", "record_param_comms", at + 400, 9, **{"External id": id_ + 1}, **sent, Seq=step),
            _host("cuda_runtime", "cudaLaunchKernel", at + 402, 3, correlation=id_ + 2, **{"External id": id_ + 1}),
            _kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", at + 450 + 10 * number, 80, id_ + 2, **sent),
        ]
    return trace


def job() -> dict[str, Any]:
    return {f"rank{number}.json": rank(number) for number in range(2)}


def proton() -> Any:
    """Events of two streams in nested scopes."""
    return [
        [
            _writer("proton_files").event(f"k{i}", 1000 * i, 800, f"step_{i // 8}", f"layer_{i % 4}", stream=7 + i % 2)
            for i in range(EVENTS)
        ]
    ]


def proton_bytes(tree: Any) -> bytes:
    """One document a stream, as Proton writes them."""
    events = [each for each in tree[0] if isinstance(each, dict)]
    streams = dict.fromkeys(json.dumps(each.get("tid")) for each in events)
    documents = ([each for each in events if json.dumps(each.get("tid")) == stream] for stream in streams)
    lines = (json.dumps({"displayTimeUnit": "us", "traceEvents": each}, separators=(",", ":")) for each in documents)
    return ("\n".join(lines) + "\n").encode()


def hatchet() -> Any:
    """A tree of Proton: steps with layers of kernels."""
    write = _writer("proton_files")
    kernels = [write.kernel(f"k{i}", 1000 + i, 1 + i % 3) for i in range(EVENTS)]
    layers = [write.scope(f"layer_{i}", *kernels[i::4]) for i in range(4)]
    return json.loads(write.tree(*(write.scope(f"step_{step}", *layers, tokens=1024) for step in range(3))))


def perfetto_bytes(tree: Any) -> bytes:
    """Raises whatever protobuf raises for a value that has no place in a Perfetto trace."""
    data: bytes = _writer("perfetto_files").as_pytorch(tree["traceEvents"]).serialize()
    return data


def nsys() -> Any:
    """Launched kernels inside ranges: tables by name, their columns and their rows."""
    thread, at = 7 << 24 | 7, [1000 * i + 5000 for i in range(EVENTS)]
    names = [[0, "cudaLaunchKernel_v7000"], *([i + 1, f"k{i}"] for i in range(EVENTS))]
    columns = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "gridX"]
    kernels = [[t + 200, t + 700, 0, 7, i, 7 << 24, i + 1, 8] for i, t in enumerate(at)]
    calls = [[t, t + 50, thread, i, 0] for i, t in enumerate(at)]
    ranges = [[t - 10, t + 60, 59, thread, f"range {i}", 0] for i, t in enumerate(at)]
    return {
        "StringIds": {"columns": ["id", "value"], "rows": names},
        RUNTIME: {"columns": ["start", "end", "globalTid", "correlationId", "nameId"], "rows": calls},
        KERNEL: {"columns": columns, "rows": kernels},
        RANGES: {"columns": ["start", "end", "eventType", "globalTid", "text", "domainId"], "rows": ranges},
    }


def nsys_bytes(tree: Any) -> bytes:
    """Raises sqlite3.Error, KeyError or TypeError for a tree that is no database."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.sqlite"
        connection = sqlite3.connect(path)
        for table, held in tree.items():
            columns = ", ".join(f'"{column!s}"' for column in held["columns"])
            connection.execute(f'CREATE TABLE "{table}" ({columns})')
            marks = ", ".join("?" * len(held["columns"]))
            for row in held["rows"]:
                connection.execute(f'INSERT INTO "{table}" VALUES ({marks})', [_sql_value(value) for value in row])
        connection.commit()
        connection.close()
        return path.read_bytes()


def _sql_value(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return float(value) if isinstance(value, int) and abs(value) >= 1 << 63 else value


def ncu() -> Any:
    """A raw page of Nsight Compute, by rows: names of columns, units, kernels."""
    identity = ["ID", "Process ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC"]
    metrics = ["gpu__time_duration.sum", "dram__bytes.sum", "sm__warps_active.avg.pct_of_peak_sustained_active"]
    kernels = [
        [i, 7, f"k{i}", 1, 7, "(128, 1, 1)", "(8, 1, 1)", 0, "9.0", 1000 + i, "4,096", 50] for i in range(EVENTS)
    ]
    return [[*identity, *metrics], [""] * len(identity) + ["ns", "byte", "%"], *kernels]


def ncu_bytes(tree: Any) -> bytes:
    out = io.StringIO()
    rows = (row if isinstance(row, list) else [row] for row in tree)
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return b"==PROF== Connected\n" + out.getvalue().encode("utf-8", "surrogatepass")


def execution_trace() -> Any:
    """Twelve ops in a row, each of which reads what the one before wrote."""
    write = _writer("test_execution_trace")
    made = [(f"aten::{name}", [write.tensor(i, i)], [write.tensor(i + 1, i + 1)]) for i, name in enumerate(EXECUTED)]
    nodes = [write.chakra(10 + i, *each) for i, each in enumerate(made)]
    return {"schema": "1.1.1", "nodes": json.loads(json.dumps(nodes))}


def executed() -> Any:
    """The trace that was recorded with the execution trace."""
    trace = kineto()
    ops = [event for event in trace["traceEvents"] if event["cat"] == "cpu_op"]
    for event, name in zip(ops, EXECUTED, strict=False):
        event["name"] = f"aten::{name}"
    return trace


def captures() -> Any:
    """A warm-up and a capture of a CUDA graph."""
    trace = {**kineto(), "traceEvents": []}
    calls = ["cudaStreamBeginCapture", "cudaLaunchKernel", "cudaLaunchKernel", "cudaStreamEndCapture"]
    for i, name in enumerate(calls):
        trace["traceEvents"] += [
            _host("user_annotation", f"module: layer{i} (Linear)", 20 * i, 15),
            _host("cpu_op", f"aten::op{i}", 20 * i + 1, 12, **{"External id": i}),
            _host("cuda_runtime", name, 20 * i + 4, 3, correlation=i + 1, **{"External id": i}),
        ]
    return trace


def replays() -> Any:
    """Replays of a CUDA graph of two kernels."""
    trace = {**kineto(), "traceEvents": []}
    for i in range(3):
        at, ids = 100 * i, {"graph id": 1}
        trace["traceEvents"] += [
            _host("user_annotation", f"ProfilerStep#{i}", at, 90),
            _host("cuda_runtime", "cudaGraphLaunch", at + 1, 3, correlation=i + 1),
            _kernel("first", at + 10, 20, i + 1, **ids, **{"graph node id": 1}),
            _kernel("second", at + 40, 20, i + 1, **ids, **{"graph node id": 2}),
        ]
    return trace


def snapshot() -> Any:
    """A segment of three blocks, allocations with stacks, and a failure."""
    frames = [{"filename": "model.py", "line": 3, "name": "forward"}, {"filename": "a.py", "line": 9, "name": "main"}]
    sizes = [("active_allocated", 6), ("active_awaiting_free", 1), ("inactive", 13)]
    blocks = [{"address": i, "size": mb * _MB, "state": state, "frames": frames} for i, (state, mb) in enumerate(sizes)]
    segment = {"device": 0, "address": 0, "total_size": 20 * _MB, "allocated_size": 6 * _MB, "active_size": 7 * _MB}
    actions = ["segment_alloc", "alloc", "alloc", "free_requested", "free_completed", "alloc", "oom"]
    events = [
        {"action": action, "addr": i % 3, "size": _MB, "stream": 0, "time_us": i, "frames": frames, "device_free": _MB}
        for i, action in enumerate(actions)
    ]
    return {"segments": [{**segment, "stream": 0, "blocks": blocks}], "device_traces": [events, []]}


def gpu() -> Any:
    """The data sheet of a GPU that tracekit does not know."""
    sheet = {"compute_capability": [8, 9], "sms": 142, "clock_ghz": 2.5, "memory_gb": 48, "bandwidth_gbs": 864}
    sheet |= {"l2_mb": 96, "tdp_w": 350, "pcie_gbs": 32, "name": "Mine", "driver_names": ["NVIDIA H200"]}
    sheet |= {"sustained": {"fp32": 0.9}, "host_op_us": [2.0, 4.0, 8.0], "launch_us": 4.5, "copy_efficiency": 0.9}
    return {"mine": {**sheet, "peaks_tflops": {"fp32": 91.6, "tf32": 91.6, "fp16": 362, "bf16": 362}}}


def toml_bytes(tree: Any) -> bytes:
    sections = tree.items() if isinstance(tree, dict) else ()
    rows = (f"[{_key(name)}]\n" + _fields(held) for name, held in sections)
    return "\n".join(rows).encode("utf-8", "surrogatepass")


def _fields(held: Any) -> str:
    pairs = held.items() if isinstance(held, dict) else [("value", held)]
    return "".join(f"{_key(key)} = {_toml(value)}\n" for key, value in pairs)


def _key(key: Any) -> str:
    return json.dumps(str(key))


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return '""' if value is None else json.dumps(value)


def run_folder() -> dict[str, Any]:
    """The files that describe a run beside its trace."""
    settings = {"model": "gpt2", "gpu": "h200", "workload": "prefill", "batch_size": 1, "seq_len": 64, "steps": 3}
    settings |= {"device": "model", "dtype": "fp32", "attention": "sdpa", "weights": "random", "output": ""}
    timed = {"before_ns": 9000.0, "after_ns": 3000.0, "launch": {"BLOCK": 128}, "roof_fraction": 0.5}
    times = {"gpu": "h200", "kernels": {"norm": timed}, "speedup": [1.0, 1.1, 1.2]}
    near = {"low": 1.0, "expected": 1.2, "high": 1.5}
    result = {"id": "compile", "title": "torch.compile", "predicted": near, "measured": near}
    result |= {"before": {"median_us": 9.0, "p10_us": 8.0, "p90_us": 10.0, "samples": 50}, "peak_memory_bytes": 1 << 30}
    measured = {
        "tracekit": "0.1",
        "settings": settings,
        "seed": 0,
        "device_name": "NVIDIA H200",
        "versions": {"torch": "2"},
    }
    measured |= {"items": 64, "unit": "tokens", "peak_memory_bytes": 1 << 30, "results": [result], "caveats": ["none"]}
    return {"run.json": {"tracekit": "0.1", "settings": settings}, "kernels.json": times, "verify.json": measured}


@cache
def _graph() -> bytes:
    """Return the graph of a norm, a product and an activation, which is named like a model's."""
    import msgspec

    from tracekit.analyzers.fuse import graph_of
    from tracekit.analyzers.trace import execution_trace as reader

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "et.json"
        path.write_text(json.dumps(execution_trace()))
        graph = graph_of(reader.read(path)).graph
    layers = (("", ""), ("model.norm", "RMSNorm"), ("model.act", "SiLU"))
    nodes = tuple(msgspec.structs.replace(node, layer=1 + (i > 5)) for i, node in enumerate(graph.nodes))
    return msgspec.json.encode(msgspec.structs.replace(graph, nodes=nodes, layers=layers, named=True))


def graph() -> Any:
    return json.loads(_graph())


@cache
def _baseline() -> bytes:
    from tracekit.check import baseline_file
    from tracekit.check.run_values import recorded

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_text(json.dumps(kineto()))
        return baseline_file.save(recorded([path], use_cache=False), "base", Path(folder), "abc").read_bytes()


def baseline() -> Any:
    return json.loads(_baseline())


def json_bytes(tree: Any) -> bytes:
    return json.dumps(tree, indent=None).encode()


def gzip_bytes(tree: Any) -> bytes:
    return gzip.compress(json_bytes(tree), 1)


def pickle_bytes(tree: Any) -> bytes:
    return pickle.dumps(tree, protocol=4)


@cache
def _writer(name: str) -> ModuleType:
    """Import a module of tests/analyzers, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "analyzers" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
