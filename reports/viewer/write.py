"""Writes a trace with its findings: first the events of the findings, then the recorded events unchanged."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
from isal import igzip

from tracekit.analyzers.core import InputError
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import MAX_BYTES, Trace, open_events, open_source
from tracekit.reports.viewer.removal import Removed, public_events, public_header
from tracekit.reports.viewer.trace_events import BEGIN, END, events, exact_microseconds
from tracekit.reports.words import printable, written

_BATCH = 4096
_BLOCK_BYTES = 1 << 20
_OPENING, _CLOSING = (f'{{"ph":"M","cat":"{category}"'.encode() for category in (BEGIN, END))
_LAST = b'{"ph":"M","name":"process_sort_index","pid":1,"args":{"sort_index":0}}\n]\n'
_END_OF_LAST = re.compile(rb"[^}]*\}\},\n")


def annotate(
    trace: str | Path,
    target: Path,
    analysis: Analysis,
    *,
    keep_metadata: bool = False,
    mark: str = "",
    max_bytes: int = MAX_BYTES,
) -> Removed:
    """Write the trace with the findings of `analysis` to `target`, compressed if that ends in .gz.

    The trace is read in blocks, and may be `target` itself. Existing findings are replaced. Environment, host names,
    command lines and call stacks are removed unless `keep_metadata` is True. `mark` identifies the trace in the
    findings. `max_bytes` limits the unpacked size. Returns what was removed.

    Raises InputError if `trace` is not a JSON trace of torch.profiler.
    """
    removed = Removed()
    with open_source(trace, max_bytes) as source:
        blocks = source.blocks()
        head, first, opened = open_events(blocks)
        if not opened or analysis.source.format != "kineto":
            raise InputError(
                f"{source.name} cannot carry findings.",
                "Only traces in the JSON format of torch.profiler can.",
                "Write a page instead, with -o report.html.",
            )
        with written(target) as beside, _compressed(beside) if target.suffix == ".gz" else beside.open("wb") as out:
            recorded = _without_findings(first, blocks)
            if not keep_metadata:
                head, recorded = _public(head, recorded, removed)
            opening = head + b'"traceEvents":[' if head else b"["
            for block in _even(chain([opening], _encoded(events(analysis, mark)), recorded)):
                out.write(block)
    return removed


def check_read_twice(trace: str) -> None:
    """Raise InputError for standard input and pipes: a trace is read once for its analysis, once to be copied."""
    if trace == "-" or Path(trace).is_fifo():
        what = "Standard input" if trace == "-" else trace
        raise InputError(f"{what} cannot be annotated.", "A pipe can be read only once.", "Name a file.")


def has_findings(trace: Path, *, max_bytes: int = MAX_BYTES) -> bool:
    """Return whether the file is a JSON trace of torch.profiler to which `annotate` has added findings."""
    with open_source(trace, max_bytes) as source:
        _, first, opened = open_events(source.blocks())
        return opened and first.lstrip().startswith(_OPENING)


def write_timeline(trace: Trace, target: Path, analysis: Analysis) -> None:
    """Write a trace of any format as compressed JSON for Perfetto, with the findings of its analysis."""
    with written(target) as beside, _compressed(beside) as out:
        for block in _even(chain([b"["], _encoded(chain(events(analysis), recorded_events(trace))), [_LAST])):
            out.write(block)


def public_copy(trace: str | Path, target: Path, *, max_bytes: int = MAX_BYTES) -> Removed:
    """Write the trace to `target`, compressed, without environment, host names, command lines and call stacks.

    Raises InputError if `trace` is not a JSON trace of torch.profiler.
    """
    removed = Removed()
    with open_source(trace, max_bytes) as source:
        blocks = source.blocks()
        head, first, opened = open_events(blocks)
        if not opened:
            raise InputError(f"{source.name} cannot be copied.", "It is not a JSON trace.", "Copy the file itself.")
        with written(target) as beside, _compressed(beside) as out:
            head, recorded = _public(head, chain([first], blocks), removed)
            for block in _even(chain([head + b'"traceEvents":[' if head else b"["], recorded)):
                out.write(block)
    return removed


def _public(head: bytes, recorded: Iterator[bytes], removed: Removed) -> tuple[bytes, Iterator[bytes]]:
    kept = public_header(head, removed)
    text = json.dumps(kept, separators=(",", ":"))[:-1] + ("," if kept else "") if head else ""
    return text.encode(), public_events(recorded, removed, tuple(kept))


@contextmanager
def _compressed(path: Path) -> Iterator[igzip.IGzipFile]:
    """Open a gzip stream without name and time in its header, so that the same trace gives the same file."""
    with (
        path.open("wb") as file,
        igzip.IGzipFile(filename="", mode="wb", compresslevel=2, fileobj=file, mtime=0) as out,
    ):
        yield out


def _encoded(rest: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    encode = msgspec.json.Encoder().encode
    while batch := list(islice(rest, _BATCH)):
        yield b"\n" + b",\n".join(map(encode, batch)) + b","
    yield b"\n"


def _even(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in blocks of equal size, because the compressed result depends on block sizes."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        whole = len(waiting) // _BLOCK_BYTES * _BLOCK_BYTES
        for start in range(0, whole, _BLOCK_BYTES):
            yield bytes(waiting[start : start + _BLOCK_BYTES])
        del waiting[:whole]
    yield bytes(waiting)


def _without_findings(text: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the events without the findings of an earlier run, which come first."""
    while len(text.lstrip()) < len(_OPENING) and (more := next(blocks, b"")):
        text += more
    if text.lstrip().startswith(_OPENING):
        while (at := text.find(_CLOSING)) < 0:
            text = text[-len(_CLOSING) :] + _more(blocks)
        while not (last := _END_OF_LAST.match(text, at)):
            text += _more(blocks)
        text = text[last.end() :]
    yield text
    yield from blocks


def _more(blocks: Iterator[bytes]) -> bytes:
    block = next(blocks, b"")
    if not block:
        raise InputError("The findings in the trace do not end.", "The file is cut off.", "Annotate the original.")
    return block


_HOST, _DEVICES = 1, 1_000
"""Process ids: that of the host, and that of device 0."""
_CATEGORIES = {"op": "cpu_op", "range": "user_annotation", "runtime": "cuda_runtime", "python": "python_function"}
_CATEGORIES |= {"module": "user_annotation", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}


def recorded_events(trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield the events of the trace."""
    device = trace.device
    for number in sorted(int(each) for each in device["device"].unique()):
        yield _named("process_name", f"device {max(number, 0)}", _DEVICES + number)
    yield from _spans(device, device["device"] + _DEVICES, device["stream"], trace.metadata.zero_ns)
    for thread, name in enumerate(trace.metadata.threads):
        yield _named("thread_name", name, _HOST, thread)
    host = trace.host
    yield from _spans(host, pd.Series(_HOST, index=host.index), host["thread"], trace.metadata.zero_ns)
    yield _named("process_name", "host", _HOST)


def _spans(rows: pd.DataFrame, process: "pd.Series[int]", thread: "pd.Series[int]", zero_ns: int) -> Iterator[Any]:
    names = [printable(str(name)) for name in rows["name"].cat.categories]
    categories = [_CATEGORIES.get(str(name), str(name)) for name in rows["category"].cat.categories]
    numbers = (rows[name] for name in ("start_ns", "duration_ns", "correlation"))
    columns = (rows["name"].cat.codes, rows["category"].cat.codes, process, thread, *numbers)
    for name, category, pid, tid, start, duration, correlation in zip(
        *(each.tolist() for each in columns), strict=True
    ):
        place = {"ph": "X", "cat": categories[category], "name": names[name], "pid": pid, "tid": tid}
        times = {"ts": exact_microseconds(zero_ns + start), "dur": exact_microseconds(duration)}
        yield {**place, **times, "args": {"correlation": correlation} if correlation >= 0 else {}}


def _named(kind: str, name: str, process: int, thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": printable(name)}}
