"""Finds captures of CUDA graphs on the host: launches that were recorded into a graph instead of being run."""

import re
from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.attribute.kernel_names import matching
from tracekit.analyzers.attribute.recorded_ranges import captured_size
from tracekit.analyzers.core import Ints

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


class Capture(msgspec.Struct, frozen=True):
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


def find_captures(host: Host, items: WorkItems) -> list[Capture]:
    """Return all captures of the trace, ordered by their ends.

    Launches that put no work on the device belong to the open capture, even on another thread: the backward pass has
    its own thread.
    """
    if not host.captures:
        return []
    not_work, forking = (matching(host.name, pattern) for pattern in (_NO_DEVICE_WORK, _FORK))
    unseen = ~np.isin(host.table["correlation"].to_numpy(), items.correlation)
    rows = np.flatnonzero(host.launches & ~not_work & unseen)
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    forks = np.sort(host.start[host.is_runtime & forking])
    sizes = [*_sizes_by_range(host), *_sizes_by_file(host.table)]
    captures = []
    for begin, end in host.captures:
        inside = rows[slice(*np.searchsorted(host.start[rows], [begin, end]))]
        forked = bool(np.diff(np.searchsorted(forks, [begin, end]))[0])
        captures.append(_capture(host, _once(host.table, inside), end, forked, _size_at(begin, sizes)))
    return captures


def _sizes_by_range(host: Host) -> list[_Sized]:
    return _sized(host.table.iloc[host.ranges.rows_of(captured_size)], captured_size)


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


def _capture(host: Host, rows: Ints, end_ns: int, forked: bool, batch: int) -> Capture:
    thread, start = host.thread[rows].astype(np.int64), host.start[rows]
    op, ranges = (nest.around(thread, start) for nest in (host.ops, host.nested_ranges_and_modules))
    signature = [_codes(host.table[column], op).tobytes() for column in _SIGNATURE]
    signature.append(_codes(host.name, ranges).tobytes())
    names = host.name.cat.categories
    calls = host.name.iloc[rows].astype(str).str.lower()
    return Capture(
        end_ns=end_ns,
        rows=rows,
        kinds=[next((kind for kind in _KINDS if kind in call), "kernel") for call in calls],
        ops=[str(names[code]) if code >= 0 else "" for code in _codes(host.name, op).tolist()],
        signature=tuple(signature),
        forked=forked,
        batch=batch,
    )


def _codes(words: pd.Series, rows: npt.NDArray[np.integer]) -> Ints:
    """Return the category of each row, -1 for none."""
    return np.where(rows >= 0, words.cat.codes.to_numpy()[rows], -1).astype(np.int64)
