"""Compares every real trace with an independent reading of the same file by `json`."""

import json
import math
import re
from collections import Counter
from decimal import Decimal

import pytest
from kineto_files import TRACES, codes, shared_text, shared_trace

from tracekit.analyzers.trace import load

HOST = {"cpu_op": "op", "user_annotation": "range", "cuda_runtime": "runtime", "cuda_driver": "runtime"}
HOST |= {"overhead": "overhead", "python_function": "module", "frame": "python"}
DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}


def nanoseconds(microseconds):
    return int((Decimal(microseconds) * 1000).to_integral_value())


def without_short_frames(event):
    """Return the expected frames: modules, Python functions of at least 100 µs, without addresses, and batches."""
    if event["cat"] != "python_function" or event["name"].startswith("nn.Module: "):
        return event
    name = re.sub(r" at 0x\w+", "", event["name"])
    kept = event["dur"] >= 100 or "cudagraph_trees.py" in name or name.endswith((": pin_memory", ": put"))
    return event | {"cat": "frame", "name": name} if kept else None


@pytest.fixture(scope="module", params=TRACES)
def both(request, shared):
    raw = json.loads(shared_text(shared, request.param))
    events = [e for e in raw["traceEvents"] if e.get("ph") == "X"]
    host = [e for e in events if e["cat"] in HOST]
    host = [kept for e in host if (kept := without_short_frames(e))]
    device = [e for e in events if e["cat"] in DEVICE]
    return raw, host, device, load(shared_trace(shared, request.param))


def test_rows_of_each_category(both):
    _, host, device, trace = both
    for expected, table in ((Counter(HOST[e["cat"]] for e in host), trace.host),
                            (Counter(DEVICE[e["cat"]] for e in device), trace.device)):  # fmt: skip
        assert {k: v for k, v in table["category"].value_counts().items() if v} == expected


def test_times_are_exact_to_the_nanosecond(both):
    raw, host, device, trace = both
    base = trace.metadata.base_ns - raw.get("baseTimeNanoseconds", 0)
    assert base == min(nanoseconds(e["ts"]) for e in host + device)
    for events, table in ((host, trace.host), (device, trace.device)):
        expected = Counter((e["name"], nanoseconds(e["ts"]) - base, nanoseconds(e["dur"])) for e in events)
        assert Counter(zip(table["name"], table["start_ns"], table["duration_ns"], strict=True)) == expected
        assert (table["duration_ns"] >= 0).all()


def test_host_arguments(both):
    _, host, _, trace = both

    def text(value):
        return "" if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    expected = Counter()
    for e in host:
        args = e.get("args", {})
        texts = [text(args.get(k)) for k in ("Input Dims", "Input type", "Concrete Inputs", "Input Strides")]
        if "Collective name" in args:
            said = ("Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size")
            told = [
                args.get("Process Group Name", ""),
                *(str(args.get(k, -1)) for k in ("Seq", "Src Rank", "Dst Rank")),
            ]
            texts[2] = text([str(args[k]) for k in said] + told)
        ids = [args.get(k, -1) for k in ("correlation", "External id", "Sequence number", "Fwd thread id")]
        expected[(e["name"], *ids, *texts)] += 1
    columns = ["name", "correlation", "external_id", "sequence", "forward_thread"]
    columns += ["shapes", "dtypes", "values", "strides"]
    assert Counter(zip(*(trace.host[c] for c in columns), strict=True)) == expected


def test_device_arguments(both):
    _, _, device, trace = both
    expected = Counter()
    for e in device:
        a = e["args"]
        numbers = [a.get(k, -1) for k in ("device", "stream", "correlation", "External id", "bytes")]
        numbers += [math.prod(a[k]) if k in a else -1 for k in ("grid", "block")]
        numbers += [a.get(k, -1) for k in ("registers per thread", "shared memory")]
        expected[(e["name"], *numbers, (a.get("est. achieved occupancy %") or -100) / 100)] += 1
    columns = ["name", "device", "stream", "correlation", "external_id", "bytes", "blocks", "threads_per_block"]
    columns += ["registers", "shared_memory_bytes"]
    rows = zip(*(trace.device[c] for c in columns), trace.device["occupancy"].fillna(-1), strict=True)
    assert Counter(rows) == expected


def test_host_order_puts_parents_before_children(both):
    host = both[3].host
    end = host["start_ns"] + host["duration_ns"]
    same = (host["thread"] == host["thread"].shift(-1)).to_numpy()[:-1]
    start, following = host["start_ns"].to_numpy()[:-1], host["start_ns"].to_numpy()[1:]
    assert (start[same] <= following[same]).all()
    ties = same & (start == following)
    assert (end.to_numpy()[:-1][ties] >= end.to_numpy()[1:][ties]).all()
    assert host["thread"].is_monotonic_increasing
    assert both[3].device["start_ns"].is_monotonic_increasing


def test_threads_and_metadata(both):
    raw, host, _, trace = both
    assert len(trace.metadata.threads) == len({(e["pid"], e["tid"]) for e in host})
    properties = raw.get("deviceProperties", [])
    assert [(d.name, d.sms, d.memory_bytes) for d in trace.metadata.devices] == [
        (d["name"], d["numSms"], d["totalGlobalMem"]) for d in properties
    ]
    distributed = raw.get("distributedInfo", {})
    assert trace.metadata.rank == distributed.get("rank")
    assert trace.metadata.world_size == distributed.get("world_size")


def test_sound_files_have_no_problems_of_reading(both):
    assert set(codes(both[3])) <= {"no-shapes", "no-device-events"}
