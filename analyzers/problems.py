"""Every problem that reading or analyzing can find: its code, severity, message and advice, in one place.

A problem is data: rows of the table `PROBLEMS`, shown in every output.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from analyzers.trace import PROBLEMS

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Problem:
    """A kind of problem. `message` may use {count}, {s} (a plural s) and {detail}."""

    code: str
    severity: Severity
    message: str
    advice: str


@dataclass(frozen=True)
class Found:
    """A problem that was seen `count` times."""

    problem: Problem
    count: int
    detail: str

    def row(self) -> tuple[str, str, int, str, str]:
        plural = "" if self.count == 1 else "s"
        message = self.problem.message.format(count=f"{self.count:,}", s=plural, detail=self.detail)
        return self.problem.code, self.problem.severity, self.count, message.strip(), self.problem.advice


def found(code: str, count: int = 1, detail: str = "") -> Found:
    """An occurrence of a registered problem. Raises KeyError for an unknown code."""
    return Found(KINDS[code], count, detail)


def table(rows: Iterable[Found]) -> pd.DataFrame:
    """The table PROBLEMS of what was found; what was found zero times is left out."""
    return _frame(f.row() for f in rows if f.count > 0)


def concat(*tables: pd.DataFrame) -> pd.DataFrame:
    """One table PROBLEMS out of several; a row that occurs twice is kept once."""
    rows = (row for t in tables for row in t.itertuples(index=False, name=None))
    return _frame(dict.fromkeys(rows))


def _frame(rows: Iterable[tuple[str, str, int, str, str]]) -> pd.DataFrame:
    columns: Iterator[tuple] = zip(*rows, strict=True)
    values = list(columns) or [()] * len(PROBLEMS.columns)
    return PROBLEMS.frame({c.name: list(v) for c, v in zip(PROBLEMS.columns, values, strict=True)})


_READING = (
    Problem(
        "truncated",
        "error",
        "The trace is cut off: {detail}.",
        "Everything before the cut is analyzed. Copy or export the trace again for the rest.",
    ),
    Problem(
        "repaired-events",
        "info",
        "{count} event{s} of invalid JSON were repaired (a quote or backslash in a name, NaN, a stray comma).",
        "Nothing is lost. Avoid quotes and backslashes in record_function names.",
    ),
    Problem(
        "skipped-events",
        "warning",
        "{count} event{s} could not be read and were left out.",
        "Shares and totals miss them. Export the trace again if they matter.",
    ),
    Problem(
        "bad-utf8",
        "info",
        "{count} event{s} held bytes that are not UTF-8; they were replaced.",
        "Only names are affected. Avoid such bytes in record_function names.",
    ),
    Problem(
        "negative-duration",
        "warning",
        "{count} event{s} had a negative duration, taken as 0.",
        "Clocks jumped while recording; the times around these events are less certain.",
    ),
    Problem(
        "missing-duration",
        "warning",
        "{count} event{s} had no duration, taken as 0.",
        "They had not ended when recording stopped. End the profiled region before the profiler stops.",
    ),
    Problem(
        "capped-duration",
        "warning",
        "{count} event{s} lasted longer than possible (past the end of later work on the same stream, or for over a "
        "day) and were capped.",
        "The profiler's end times were wrong; the capped times are upper bounds.",
    ),
    Problem(
        "unended-ranges",
        "info",
        "{count} range{s} or call{s} had not ended when the recording did; they are taken to last until then.",
        "What they hold is counted in full. End the profiled region before recording stops.",
    ),
    Problem(
        "graphs-as-a-whole",
        "info",
        "{count} run{s} of CUDA graphs were traced as a whole; each counts as one kernel.",
        "For their kernels, record with nsys profile --cuda-graph-trace=node, which costs some time.",
    ),
    Problem(
        "unused-gpu-metrics",
        "info",
        "The report holds {count} sample{s} of GPU metrics, which are not used yet.",
        "Nothing is lost; look at them in Nsight Systems.",
    ),
    Problem(
        "implausible-time",
        "warning",
        "{count} event{s} started at an impossible time and were left out.",
        "Their time was zero, missing, or months away from the rest. Export the trace again if they matter.",
    ),
    Problem(
        "unpaired-events",
        "warning",
        "{count} begin or end event{s} had no counterpart and were left out.",
        "They began before recording, or ended after it.",
    ),
    Problem(
        "unknown-category",
        "info",
        "{count} event{s} of unknown categories were left out: {detail}.",
        "If this is work of a device, tell us its category.",
    ),
    Problem(
        "secrets-in-metadata",
        "warning",
        "The trace's metadata holds {count} thing{s} that look like an environment or a secret; none was read.",
        "Remove them before sharing the trace file, and revoke any token that was shared.",
    ),
    Problem(
        "unreadable-metadata",
        "info",
        "Part of the trace's metadata could not be read: {detail}.",
        "The events are not affected; the name of the device, the rank or the settings of the capture may be missing.",
    ),
    Problem(
        "no-device-events",
        "info",
        "The trace holds no work of a device; times are of the host.",
        "To profile a GPU, record with ProfilerActivity.CUDA (XPU, ...; nsys: -t cuda) on a machine that has one.",
    ),
    Problem(
        "no-host-events",
        "warning",
        "The trace holds no host events; device work cannot be given to ops or layers.",
        "Record with ProfilerActivity.CPU as well (nsys: -t cuda,nvtx).",
    ),
    Problem(
        "no-shapes",
        "warning",
        "Ops carry no input shapes; FLOPs and bytes are unknown.",
        "Record with record_shapes=True (of torch.profiler, or of emit_nvtx under nsys).",
    ),
    Problem(
        "duplicate-correlations",
        "info",
        "{count} runtime call{s} share the correlation id of another one.",
        "A kernel is given to one of the calls; merged traces of several processes do this.",
    ),
)

_ANALYZING = (
    Problem(
        "unknown-gpu",
        "warning",
        "The GPU that ran the work{detail} is not known; nothing is placed on a roofline.",
        "Name it with --gpu; `tracekit gpus` lists the known ones.",
    ),
    Problem(
        "gpu-as-named",
        "info",
        "The trace does not say which GPU ran the work; the one named, {detail}, is taken for it.",
        "Roofline fractions are wrong if another GPU ran it.",
    ),
    Problem(
        "no-layers",
        "info",
        "The trace marks no layers.",
        "Capture with tracekit, wrap the model in tracekit.annotate(model), or record with with_stack=True.",
    ),
    Problem(
        "no-launch",
        "info",
        "{count} device event{s} have neither a launching call nor an op in the trace.",
        "They were launched before recording began, or by code that is not recorded. Add warm-up steps to the profile.",
    ),
    Problem(
        "launch-without-op",
        "info",
        "{count} device event{s} were launched outside every recorded op.",
        "Custom kernels show up as ops when they are registered with torch.library.",
    ),
    Problem(
        "graph-not-mapped",
        "warning",
        "{count} device event{s} of CUDA graphs, {detail} of the busy time, cannot be given to ops: the trace holds no "
        "capture of their graph, or several that fit. Their layer is the one around the graph's launch.",
        "Record the capture too: start the profiler before the warm-up in which graphs are made. Or profile once "
        "without graphs (enforce_eager, torch.compile without mode=reduce-overhead).",
    ),
    Problem(
        "device-before-launch",
        "warning",
        "{count} device event{s} start before their launch, by clocks that disagree; their delay is taken as 0.",
        "Times on the device are right; launch delays and gaps at the borders of steps are less certain.",
    ),
    Problem(
        "above-roof-l2",
        "info",
        "{count} device event{s} ran faster than the memory bandwidth allows; their data fit the L2 cache.",
        "Nothing is wrong. Running in a larger model, with a cold cache, they would be slower.",
    ),
    Problem(
        "above-roof",
        "warning",
        "{count} device event{s} ran faster than the roofline allows (the worst: {detail}).",
        "Their FLOPs or bytes are overestimated, or the GPU is another one. Do not rely on their roof fractions.",
    ),
    Problem(
        "bound-unknown",
        "info",
        "What bounds {count} work item{s}, {detail} of the busy time, is not known.",
        "Record with record_shapes=True on a known GPU.",
    ),
    Problem(
        "estimated-bytes",
        "info",
        "The bytes of {count} generated kernel{s} are those of their inputs, read once; their FLOPs are unknown.",
        "Their roof fractions are estimates.",
    ),
    Problem(
        "busy-exceeds-latency",
        "warning",
        "The device was busy for longer, in the trace, than a step takes without the profiler; shares are scaled down.",
        "The profiler slowed the device, or the runs differ. Profile again with more warm-up steps.",
    ),
)

KINDS: dict[str, Problem] = {p.code: p for p in (*_READING, *_ANALYZING)}
