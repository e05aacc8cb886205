"""Makes a small sample of a recorded job: one step of each rank, without what `tracekit ranks` does not read.

    python benchmarks/ranks_gpu/sample.py JOB STEP OUT [--ranks 0 1]

JOB holds rank-N.json.gz, as judge.py unpacks them: traces without metadata of machines and people. Ops inside
other ops that launch nothing (views, allocations), calls of the runtime that launch and wait for nothing, and strides
are left out.
"""

import argparse
import gzip
import json
from bisect import bisect_left
from collections import defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]
_RUNTIME = ("cuda_runtime", "cuda_driver")
_HOST = ("cpu_op", "user_annotation", "overhead", *_RUNTIME)
_LAUNCHES = ("Launch", "Memcpy", "Memset", "Synchronize")
_LEFT_OUT = ("Input Strides", "Concrete Inputs")
_COLLECTIVE = "record_param_comms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path)
    parser.add_argument("step", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, nargs="*")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(asked.job.glob("rank-*.json.gz")):
        if asked.ranks is None or int(path.name.split(".")[0].removeprefix("rank-")) in asked.ranks:
            data = small(json.loads(gzip.decompress(path.read_bytes())), asked.step)
            (asked.out / path.name).write_bytes(data)
            print(f"{asked.out / path.name}: {len(data):,} bytes")


def small(trace: dict[str, Any], step: int) -> bytes:
    """The compressed trace of one step. Times begin at zero, with three decimals."""
    events = trace.pop("traceEvents")
    marks = sorted(
        (each["ts"], each["ts"] + each["dur"])
        for each in events
        if each["cat"] == "user_annotation" and each["name"].startswith("ProfilerStep#")
    )
    begin, end = marks[step]
    host = _outer([each for each in events if begin <= each["ts"] < end and _read(each)])
    launched = {each["args"]["correlation"] for each in host if "correlation" in each["args"]}
    device = [each for each in events if each["cat"] not in _HOST and each["args"].get("correlation") in launched]
    zero = int(min(each["ts"] for each in [*host, *device])) - 10
    trace["baseTimeNanoseconds"] = trace.get("baseTimeNanoseconds", 0) + zero * 1000
    text = json.dumps(
        {**trace, "traceEvents": [_plain(each, zero) for each in [*host, *device]]}, separators=(",", ":")
    )
    return gzip.compress(text.encode(), 9, mtime=0)


def _read(event: Event) -> bool:
    return event["cat"] in _HOST and (event["cat"] not in _RUNTIME or any(word in event["name"] for word in _LAUNCHES))


def _outer(host: list[Event]) -> list[Event]:
    """The events without the ops inside others that launch nothing."""
    calls, ends, kept = defaultdict(list), defaultdict(float), []
    for event in sorted(host, key=lambda each: (each["ts"], -each["dur"])):
        if event["cat"] in _RUNTIME:
            calls[event["tid"]].append(event["ts"])
    for event in sorted(host, key=lambda each: (each["ts"], -each["dur"])):
        thread, end = event["tid"], event["ts"] + event["dur"]
        if event["cat"] == "cpu_op":
            first = bisect_left(calls[thread], event["ts"])
            launches = first < len(calls[thread]) and calls[thread][first] < end
            if event["ts"] < ends[thread] and not launches and event["name"] != _COLLECTIVE:
                continue
            ends[thread] = max(ends[thread], end)
        kept.append(event)
    return kept


def _plain(event: Event, zero: int) -> Event:
    args = {name: value for name, value in event["args"].items() if name not in _LEFT_OUT}
    return {**event, "ts": round(event["ts"] - zero, 3), "dur": round(event["dur"], 3), "args": args}


if __name__ == "__main__":
    main()
