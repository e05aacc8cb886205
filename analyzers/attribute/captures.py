"""Finds captures of CUDA graphs on the host: launches that were recorded into a graph instead of being run."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.attribute.kernel_names import is_launch, matching
from tracekit.analyzers.attribute.nesting import Nest, take
from tracekit.analyzers.attribute.recorded_ranges import UserRanges, captured_size

Ints = npt.NDArray[np.int64]

_BEGIN = re.compile(r"StreamBeginCapture")
_END = re.compile(r"StreamEndCapture")
_NO_DEVICE_WORK = re.compile(r"HostFunc|GraphLaunch")
_FORK = re.compile(r"StreamWaitEvent")
_KINDS = ("memcpy", "memset")
_SIGNATURE = ("name", "shapes", "dtypes", "values")
_GENERATED = "triton_"
MERGED = "captures of "
"""Prefix of the row that names the file in which captures were recorded (`merged_captures`)."""
_Sized = tuple[int, int, int]
"""Start and end of a span, and the batch size of the captures in it; 0: unknown."""
_BATCH = re.compile(r"(?:bs|batch(?:_size)?|num_tokens|tokens)[_=-]?(\d{1,7})(?!\d)")


@dataclass(frozen=True)
class Capture:
    """A capture, with its launches in order."""

    end_ns: int
    rows: Ints
    """Host rows of the launching calls."""
    kinds: list[str]
    """Kind of each launch: kernel, memcpy or memset."""
    ops: list[str]
    """Name of the op around each launch; "" for none."""
    signature: tuple[bytes, ...]
    """Op, shapes, dtypes, values and enclosing range of each launch. Captures with equal signatures are
    interchangeable."""
    forked: bool
    """Whether another stream joined the capture; then nodes do not start in the order of the launches."""
    batch: int = 0
    """Batch size that a range around the capture, or the name of its file, states; 0: unknown."""

    def fits(self, names: list[str], kinds: list[str]) -> bool:
        """Return whether this capture could have made a graph of these nodes.

        A generated kernel has the name of its op.
        """
        return self.kinds == kinds and all(
            op == name for op, name in zip(self.ops, names, strict=True) if op.startswith(_GENERATED)
        )


def find_captures(host: pd.DataFrame, items: WorkItems, ops: Nest) -> list[Capture]:
    """Return all captures of the trace, ordered by their ends.

    Launches that put no work on the device belong to the open capture, even on another thread: the backward pass has
    its own thread.
    """
    spans = capture_spans(host)
    if not spans:
        return []
    runtime = (host["category"] == "runtime").to_numpy()
    start = host["start_ns"].to_numpy()
    launches = runtime & is_launch(host["name"]) & ~matching(host["name"], _NO_DEVICE_WORK)
    rows = np.flatnonzero(launches & ~np.isin(host["correlation"].to_numpy(), items.correlation))
    rows = rows[np.argsort(start[rows], kind="stable")]
    forks = np.sort(start[runtime & matching(host["name"], _FORK)])
    captures, sizes = [], [*_sizes_by_range(host), *_sizes_by_file(host)]
    for begin, end in spans:
        inside = rows[slice(*np.searchsorted(start[rows], [begin, end]))]
        forked = bool(np.diff(np.searchsorted(forks, [begin, end]))[0])
        capture = _capture(host, _once(host, inside), end, forked, ops)
        captures.append(replace(capture, batch=_size_at(begin, sizes)))
    return captures


def capture_spans(host: pd.DataFrame) -> list[tuple[int, int]]:
    """Return start and end of each capture: a call that begins one, and the next call on its thread that ends one."""
    runtime = (host["category"] == "runtime").to_numpy()
    thread, start = host["thread"].to_numpy(), host["start_ns"].to_numpy()
    begins = runtime & matching(host["name"], _BEGIN)
    calls = np.flatnonzero(begins | (runtime & matching(host["name"], _END)))
    calls = calls[np.lexsort((start[calls], thread[calls]))]
    first, second = calls[:-1], calls[1:]
    pairs = begins[first] & ~begins[second] & (thread[first] == thread[second])
    spans = zip(start[first[pairs]].tolist(), start[second[pairs]].tolist(), strict=True)
    return sorted(spans, key=lambda span: span[1])


def _sizes_by_range(host: pd.DataFrame) -> list[_Sized]:
    rows = UserRanges(host).rows_of(captured_size)
    return _sized(host.iloc[rows], captured_size)


def _sizes_by_file(host: pd.DataFrame) -> list[_Sized]:
    """Return the sizes in the names of the files whose captures were merged into the trace."""
    rows = np.flatnonzero((host["category"] == "overhead").to_numpy())
    merged = host.iloc[rows][host["name"].iloc[rows].astype(str).str.startswith(MERGED).to_numpy(dtype=bool)]
    return _sized(merged, lambda name: int(size[1]) if (size := _BATCH.search(name)) else 0)


def _sized(rows: pd.DataFrame, size_of: Callable[[str], int]) -> list[_Sized]:
    start = rows["start_ns"].to_numpy().astype(np.int64)
    end = start + rows["duration_ns"].to_numpy().astype(np.int64)
    return list(zip(start.tolist(), end.tolist(), map(size_of, rows["name"].astype(str)), strict=True))


def _size_at(time: int, sizes: list[_Sized]) -> int:
    return next((size for start, end, size in sizes if size and start <= time <= end), 0)


def _once(host: pd.DataFrame, rows: Ints) -> Ints:
    """Remove the driver's row of each call that the runtime recorded, too."""
    correlation = pd.Index(host["correlation"].to_numpy()[rows])
    return rows[~correlation.duplicated() | (correlation < 0)]


def _capture(host: pd.DataFrame, rows: Ints, end_ns: int, forked: bool, ops: Nest) -> Capture:
    thread, start = host["thread"].to_numpy()[rows].astype(np.int64), host["start_ns"].to_numpy()[rows]
    op = ops.around(thread, start)
    ranges = Nest(host, host["category"].isin(["range", "module"]).to_numpy()).around(thread, start)
    signature = [take(host[column].cat.codes.to_numpy().astype(np.int64), op).tobytes() for column in _SIGNATURE]
    signature.append(take(host["name"].cat.codes.to_numpy().astype(np.int64), ranges).tobytes())
    calls = host["name"].iloc[rows].astype(str).str.lower()
    names = host["name"].astype(object).to_numpy()
    return Capture(
        end_ns=end_ns,
        rows=rows,
        kinds=[next((kind for kind in _KINDS if kind in call), "kernel") for call in calls],
        ops=[str(names[row]) if row >= 0 else "" for row in op.tolist()],
        signature=tuple(signature),
        forked=forked,
    )
