"""Finds, in a trace of marked op calls, the time of each op's kernels and the op of each kernel."""

import json
import tempfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from kernel_cases.case import Case
from measurements.signatures import written
from torch.profiler import profile

Event = dict[str, Any]
_MARK = "case:"
_COPIES = ("h2d", "d2h", "d2d")


class Walls:
    """Wall times of the warm runs of each case, in seconds."""

    def __init__(self) -> None:
        self._found: dict[int, list[float]] = defaultdict(list)

    def add(self, number: int, seconds: float) -> None:
        self._found[number].append(seconds)

    def median_us(self, number: int) -> float:
        return round(1e6 * median(self._found[number]), 1)


def recorded_events(profiler: profile) -> list[Event]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events: list[Event] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return events


def op_rows(cases: Sequence[Case], events: Sequence[Event], walls: Walls) -> Iterator[tuple[object, ...]]:
    """Yield one row for each op of a case that launched kernels, and for each of its calls."""
    by_op: dict[tuple[int, str, str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (number, state, repeat), op, count, us in _calls(events):
        key = (number, op["name"].removeprefix("aten::"), _inputs(op), count[0])
        if (state, repeat) != ("warm", "0"):
            by_op[key][state].append(us)
        by_op[key]["kernels"] = [count[1]]
    for (number, op, inputs, _), times in sorted(by_op.items()):
        case = cases[number]
        cold, warm = (median(times[state]) if times[state] else median(times["cold"]) for state in ("cold", "warm"))
        wall = walls.median_us(number) if case.label.startswith(_COPIES) else ""
        yield case.label, op, inputs, case.elements, f"{cold:.4g}", f"{warm:.4g}", times["kernels"][0], wall


def launchers(events: Sequence[Event]) -> dict[int, list[tuple[int, str, str]]]:
    """Return, by case and for each of its kernels in order, a number of the op call, the op's name, and its inputs."""
    by_case: dict[int, list[tuple[int, str, str]]] = defaultdict(list)
    for mark, op, work in _launches(events):
        if work["cat"] == "kernel":
            by_case[_number(mark)[0]].append((id(op), op["name"].removeprefix("aten::"), _inputs(op)))
    return by_case


def _calls(events: Sequence[Event]) -> Iterator[tuple[Any, Event, Any, float]]:
    """Yield the mark, the op, (its number among equal ones, kernels) and the kernel time of each op call."""
    totals: dict[tuple[int, int], tuple[Event, Event, list[float]]] = {}
    for mark, op, work in _launches(events):
        totals.setdefault((id(mark), id(op)), (mark, op, []))[2].append(work["dur"])
    alike: dict[tuple[int, str], int] = defaultdict(int)
    for mark, op, durations in totals.values():
        text = op["name"] + _inputs(op)
        alike[id(mark), text] += 1
        yield _number(mark), op, (alike[id(mark), text], len(durations)), sum(durations)


def _launches(events: Sequence[Event]) -> Iterator[tuple[Event, Event, Event]]:
    """Yield the mark around each device event, the op that launched it, and the event, by time on the device."""
    marks = sorted((event for event in events if _is_mark(event)), key=lambda event: event["ts"])
    starts = [event["ts"] for event in marks]
    ops = _Ops(events)
    launches = {event["args"]["correlation"]: event for event in events if _is_launch(event)}
    for event in sorted((event for event in events if _is_work(event)), key=lambda event: event["ts"]):
        launch = launches.get(event["args"].get("correlation"))
        number = bisect_right(starts, launch["ts"]) - 1 if launch else -1
        op = ops.innermost(launch["tid"], launch["ts"]) if launch else None
        if launch and op is not None and number >= 0 and launch["ts"] <= marks[number]["ts"] + marks[number]["dur"]:
            yield marks[number], op, event


def _number(mark: Event) -> tuple[int, str, str]:
    """Return the case, the state and the repeat in a mark's name."""
    number, state, repeat = mark["name"].removeprefix(_MARK).split(":")
    return int(number), state, repeat


class _Ops:
    """The op calls of each thread, ordered by time."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._of_thread: dict[int, list[Event]] = defaultdict(list)
        for event in events:
            if event.get("cat") == "cpu_op":
                self._of_thread[event["tid"]].append(event)
        for ops in self._of_thread.values():
            ops.sort(key=lambda event: (event["ts"], -event["dur"]))
        self._starts = {thread: [event["ts"] for event in ops] for thread, ops in self._of_thread.items()}

    def innermost(self, thread: int, at: float) -> Event | None:
        number = bisect_right(self._starts.get(thread, []), at) - 1
        while number >= 0:
            event = self._of_thread[thread][number]
            if event["ts"] + event["dur"] >= at:
                return event
            number -= 1
        return None


def _inputs(op: Event) -> str:
    args = op.get("args", {})
    return written(*(args.get(name, []) for name in ("Input Dims", "Input type", "Concrete Inputs", "Input Strides")))


def _is_mark(event: Event) -> bool:
    return event.get("cat") == "user_annotation" and event["name"].startswith(_MARK)


def _is_launch(event: Event) -> bool:
    return event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})


def _is_work(event: Event) -> bool:
    return event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
