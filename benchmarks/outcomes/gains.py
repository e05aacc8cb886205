"""Every optimization that was measured alone, by run."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from accuracy.chapter import table
from accuracy.speedup_rows import cells

from tracekit.analyzers.core import Interval
from tracekit.reports.words import ABSENT, duration, percent, significant, speedup, times

_MARK = " ¹"
_NOTE = "¹ Timed after a profiler in the same process, which overstates the gain of fewer launches."
_KEY = ("model", "workload", "dtype", "attention", "batch_size", "seq_len")
_LENGTH = "512"
_HEAD = ["optimization", "predicted", "measured", "step", "off by", "same"]

Cells = Mapping[str, str]


def chapter() -> str:
    return "\n\n".join(["## Run by run", *_runs(cells()), _NOTE])


def _runs(stored: Iterable[Cells]) -> list[str]:
    runs: dict[tuple[str, ...], list[Cells]] = defaultdict(list)
    for cell in stored:
        runs[tuple(cell[name] for name in _KEY)].append(cell)
    return [f"### {_title(key)}\n\n{table(_HEAD, map(_row, group), 5)}" for key, group in runs.items()]


def _title(key: tuple[str, ...]) -> str:
    model, workload, dtype, attention, batch, length = key
    tokens = "" if length in (_LENGTH, "0") else f", {length} tokens"
    return f"{model}, {workload}, {dtype}, batch {batch}{tokens}" + (
        ", unfused attention" if attention == "eager" else ""
    )


def _row(cell: Cells) -> list[str]:
    mark = "" if cell["timed"] == "unprofiled" else _MARK
    predicted = _interval(cell, "predicted", "expected")
    if cell["error"]:
        return [cell["optimization"], predicted, f"not possible: {_why(cell['error'])}", *[ABSENT] * 3]
    gain = float(cell["measured_speedup"])
    return [
        cell["optimization"] + mark,
        predicted,
        times(gain, gain),
        f"{duration(float(cell['before_us']))} → {duration(float(cell['after_us']))}",
        f"{significant(100 * float(cell['relative_diff']))} %" if cell["relative_diff"] else ABSENT,
        percent(float(cell["agreement"])) if cell["agreement"] else ABSENT,
    ]


def _why(error: str) -> str:
    if "Cannot copy between CPU and CUDA" in error or "It copies from the host's memory" in error:
        return "copies from the host"
    return error.partition(": ")[2].replace("|", "/")


def _interval(cell: Cells, name: str, middle: str) -> str:
    if not cell[f"{name}_low"]:
        return ABSENT
    return speedup(Interval(*(float(cell[f"{name}_{end}"]) for end in ("low", middle, "high"))))
