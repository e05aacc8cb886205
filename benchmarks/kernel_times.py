"""From a trace of marked op calls to the time of each op's kernels."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from kernel_cases.case import Case
from measurements.signatures import written

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


def op_rows(cases: Sequence[Case], events: Sequence[Event], walls: Walls) -> Iterator[tuple[object, ...]]:
    """One row for each op of a case that started kernels, and for each time that the case called it."""
    ranges = sorted(
        ((event["ts"], event["ts"] + event["dur"], event["name"]) for event in events if _is_mark(event)),
    )
    found: dict[tuple[int, str, str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (number, state, repeat), op, count, us in _calls(events, ranges):
        key = (number, op["name"].removeprefix("aten::"), _inputs(op), count[0])
        if (state, repeat) != ("warm", "0"):
            found[key][state].append(us)
        found[key]["kernels"] = [count[1]]
    for (number, op, inputs, _), times in sorted(found.items()):
        case = cases[number]
        cold, warm = (median(times[state]) if times[state] else median(times["cold"]) for state in ("cold", "warm"))
        wall = walls.median_us(number) if case.label.startswith(_COPIES) else ""
        yield case.label, op, inputs, case.elements, f"{cold:.4g}", f"{warm:.4g}", times["kernels"][0], wall


def _calls(events: Sequence[Event], ranges: list[tuple[float, float, str]]) -> Iterator[tuple[Any, Event, Any, float]]:
    """The mark, op, (its number among alike in the mark, kernels) and kernel time of each op call."""
    starts = [start for start, _, _ in ranges]
    ops = _Ops(events)
    launches = {event["args"]["correlation"]: event for event in events if _is_launch(event)}
    totals: dict[tuple[int, int], tuple[Event, list[float]]] = {}
    for event in sorted((event for event in events if _is_work(event)), key=lambda event: event["ts"]):
        launch = launches.get(event["args"].get("correlation"))
        mark = bisect_right(starts, launch["ts"]) - 1 if launch else -1
        op = ops.innermost(launch["tid"], launch["ts"]) if launch else None
        if mark >= 0 and op is not None and launch["ts"] <= ranges[mark][1]:
            totals.setdefault((mark, id(op)), (op, []))[1].append(event["dur"])
    alike: dict[tuple[int, str], int] = defaultdict(int)
    for (mark, _), (op, durations) in totals.items():
        text = op["name"] + _inputs(op)
        alike[mark, text] += 1
        number, state, repeat = ranges[mark][2].removeprefix(_MARK).split(":")
        yield (int(number), state, repeat), op, (alike[mark, text], len(durations)), sum(durations)


class _Ops:
    """The op calls of each thread, by time."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._of_thread: dict[int, list[Event]] = defaultdict(list)
        for event in events:
            if event.get("cat") == "cpu_op":
                self._of_thread[event["tid"]].append(event)
        for found in self._of_thread.values():
            found.sort(key=lambda event: (event["ts"], -event["dur"]))
        self._starts = {thread: [event["ts"] for event in found] for thread, found in self._of_thread.items()}

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
