"""Writes profiles as Proton does: keys in alphabetical order, one document per stream."""

import json


def tree(*children):
    root = {"children": list(children), "frame": {"name": "ROOT", "type": "function"}, "metrics": {"count": 0}}
    root["metrics"]["time (ns)"] = 0
    device = {"arch": "90", "bus_width": 5120, "clock_rate": 1980000, "memory_clock_rate": 2619000, "num_sms": 132}
    return json.dumps([root, {"CUDA": {"0": device}}], separators=(",", ":")).encode()


def scope(name, *children, **metrics):
    return {"children": list(children), "frame": {"name": name, "type": "function"}, "metrics": metrics}


def kernel(name, time_ns, count=1):
    metrics = {"count": count, "device_id": "0", "device_type": "CUDA", "time (ns)": time_ns}
    return scope(name, **metrics)


def event(name, start_ns, duration_ns, *scopes, stream=7):
    stack = ["ROOT", *scopes, name]
    times = {"dur": duration_ns / 1000, "ts": start_ns / 1000}
    return {"args": {"call_stack": stack}, "cat": "kernel", "name": name, "ph": "X", "tid": stream, **times}


def timeline(*events):
    lines = []
    for stream in sorted({each["tid"] for each in events}):
        of_stream = [{key: each[key] for key in sorted(each)} for each in events if each["tid"] == stream]
        document = {"displayTimeUnit": "us", "traceEvents": of_stream}
        lines.append(json.dumps(document, separators=(",", ":")) + "\n")
    return "".join(lines).encode()
