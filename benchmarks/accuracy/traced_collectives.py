"""Compares collectives in public traces that record their messages with their modelled times."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from accuracy.chapter import table
from tracekit.analyzers import analyze
from tracekit.analyzers.attribute import messages
from tracekit.analyzers.cost import collective_ns
from tracekit.analyzers.trace import load

_TRACES = ("a100_resnet-ddp_nccl", "v100_resnet-ddp_float-ts", "ranks/rank-0", "ranks/rank-1")
_INTRODUCTION = """Kernels in public traces that record their message sizes, in µs: modelled for the GPU's link, and for
the host's memory; measured, from the shortest to the longest. A trace does not say which link was used, and a kernel
also waits for other ranks, so the model can only be compared with the shortest: no kernel may be faster than the model
of its link. The shortest of the A100s agree with the model of the host's memory, not with that of NVLink: they are
equal to it for 424 bytes, and 10 to 28 % longer for 26 and 32 MB."""


def written(shared: Path) -> str:
    rows = [row for name in _TRACES for row in _rows(shared / "traces" / f"{name}.json.gz", name)]
    if not rows:
        return "Traces with collectives are not at hand."
    head = ("trace", "collective", "bytes", "ranks", "kernels", "own link", "host", "shortest", "longest")
    return f"{_INTRODUCTION}\n\n{table(head, rows, 7)}"


def _rows(path: Path, name: str) -> Iterator[tuple[object, ...]]:
    if not path.is_file():
        return
    trace = load(path)
    analysis = analyze(trace)
    gpu, work = analysis.source.gpu, analysis.work
    moved = pd.Series(messages(trace.host, work["name"], work["op"].to_numpy()), index=work.index, dtype=object)
    known = moved[[message is not None and message.known for message in moved]]
    if gpu is None or known.empty:
        return
    for message, us in (work["duration_ns"][known.index] / 1e3).groupby(known, sort=False):
        own, host = (collective_ns(message, gpu, link) / 1e3 for link in (None, "host"))
        times = (f"{value:,.0f}" for value in (own, host, us.min(), us.max()))
        yield (name, message.kind, f"{message.bytes:,}", message.ranks, len(us), *times)
