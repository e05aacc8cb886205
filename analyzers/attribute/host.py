"""The host table of a trace, with what several parts of its analysis read: columns, rows of a kind, and nests."""

import re
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.host_kinds import is_collective, is_compiling, is_module, synchronises
from tracekit.analyzers.attribute.kernel_names import is_launch, matching, one_of
from tracekit.analyzers.attribute.nesting import BLOCK_ROWS, Nest, Rows, take
from tracekit.analyzers.attribute.recorded_ranges import UserRanges
from tracekit.analyzers.core import Bools, Ints

_BEGIN = re.compile(r"StreamBeginCapture")
_END = re.compile(r"StreamEndCapture")
_GRAPH_LAUNCH = re.compile(r"GraphLaunch", re.IGNORECASE)
ENGINE = re.compile(r"autograd::engine::evaluate_function")
_OPTIMIZER = re.compile(r"Optimizer\.")
_REGION = re.compile(r"^Torch-Compiled Region: ")
_OF_GPUS = re.compile(
    r"^aten::_?(?:cudnn_(?!is_acceptable)|miopen_|thnn_fused_|(?:flash|efficient|cudnn)_attention_"
    r"|scaled_dot_product_(?:flash|efficient|cudnn)_attention(?!\w*_for_cpu))|^nccl:"
)
_OF_MACS = re.compile(r"^aten::(?:_?mps_|_?lstm_mps|\w+_for_mps$)")


class Host:
    """The table HOST. What is derived from it is computed when it is first read, and then kept.

    Masks have one entry per row. Times are in ns.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table
        self.name: pd.Series = table["name"]
        self.start: Ints = table["start_ns"].to_numpy()
        self.duration: npt.NDArray[np.integer] = table["duration_ns"].to_numpy()
        self.thread: npt.NDArray[np.integer] = table["thread"].to_numpy()

    def at_other_times(self, table: pd.DataFrame) -> "Host":
        """Return the host of a table with other times. The masks are kept: they follow from names and categories."""
        moved = Host(table)
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        vars(moved).update({name: array for name, array in arrays.items() if array.dtype.kind == "b"})
        return moved

    def start_of(self, rows: Ints | Rows) -> Ints:
        """Return the start of each of the rows; -1 for row -1 (none)."""
        return take(self.start, rows)

    def thread_of(self, rows: Ints | Rows) -> npt.NDArray[np.integer]:
        """Return the thread of each of the rows; -1 for row -1 (none)."""
        return take(self.thread, rows)

    @cached_property
    def is_op(self) -> Bools:
        return self._is("op")

    @cached_property
    def is_range(self) -> Bools:
        return self._is("range")

    @cached_property
    def is_runtime(self) -> Bools:
        return self._is("runtime")

    def _is(self, category: str) -> Bools:
        return (self.table["category"] == category).to_numpy()

    @cached_property
    def launches(self) -> Bools:
        """Calls that put work on a device."""
        return self.is_runtime & is_launch(self.name)

    @cached_property
    def of_gpus(self) -> Bools:
        """Ops that only a GPU of NVIDIA or AMD computes."""
        return self.is_op & matching(self.name, _OF_GPUS)

    @cached_property
    def of_macs(self) -> Bools:
        """Ops that only the GPU of a Mac computes."""
        return self.is_op & matching(self.name, _OF_MACS)

    @cached_property
    def launches_graphs(self) -> Bools:
        """Calls that launch a CUDA graph."""
        return matching(self.name, _GRAPH_LAUNCH)

    @cached_property
    def waits(self) -> Bools:
        """Calls in which the host waits for a device."""
        return synchronises(self.table)

    @cached_property
    def communicates(self) -> Bools:
        """Ops and ranges of collectives."""
        return is_collective(self.table)

    @cached_property
    def compiles(self) -> Bools:
        """Ranges, frames and ops of compilers."""
        return is_compiling(self.table)

    @cached_property
    def is_module(self) -> Bools:
        """Calls of modules, recorded by a profiler or marked by tracekit's capture."""
        return is_module(self.table)

    @cached_property
    def is_backward(self) -> Bools:
        """Ops of the backward pass: autograd's engine evaluates them, or they name their forward op's thread."""
        named = (self.table["forward_thread"].to_numpy() > 0) & (self.table["sequence"].to_numpy() >= 0)
        return named | matching(self.name, ENGINE)

    @cached_property
    def optimizes(self) -> Bools:
        """Ranges of torch.optim: Optimizer.step#..., Optimizer.zero_grad#..."""
        return self.is_range & matching(self.name, _OPTIMIZER)

    @cached_property
    def compiled_regions(self) -> Bools:
        """Calls of compiled code."""
        return matching(self.name, _REGION)

    @cached_property
    def trains(self) -> bool:
        """Whether there is a backward pass, or a step of an optimizer of torch.optim."""
        return bool(self.optimizes.any() or (self.is_op & self.is_backward).any())

    @cached_property
    def captures(self) -> list[tuple[int, int]]:
        """Start and end of each capture of a CUDA graph."""
        return capture_spans(self.table)

    @cached_property
    def ranges(self) -> UserRanges:
        """The rows of category range."""
        return UserRanges(self.table)

    @cached_property
    def ops(self) -> Nest:
        """The ops on each thread."""
        return Nest(self.table, self.is_op)

    @cached_property
    def optimizers(self) -> Nest:
        """The ranges of torch.optim on each thread."""
        return Nest(self.table, self.optimizes)

    @cached_property
    def nested_ranges(self) -> Nest:
        """The ranges on each thread."""
        return Nest(self.table, self.is_range)

    @cached_property
    def nested_ranges_and_modules(self) -> Nest:
        """The ranges and calls of modules on each thread."""
        return Nest(self.table, one_of(self.table["category"], ("range", "module")))


def distinct_names(names: pd.Series) -> list[str]:
    """Return the distinct ones of a column's names. pandas would take more memory for them than the table has."""
    codes, used = names.cat.codes.to_numpy(), np.zeros(len(names.cat.categories), dtype=bool)
    for first in range(0, len(codes), BLOCK_ROWS):
        used[codes[first : first + BLOCK_ROWS]] = True
    return [str(name) for name in names.cat.categories[used]]


def counted_calls(host: pd.DataFrame, rows: Bools, *columns: str) -> dict[tuple[str, ...], int]:
    """Return how many of the rows of HOST have each combination of texts in these columns, in order of appearance."""
    chosen = host.loc[rows, list(columns)]
    number = np.zeros(len(chosen), dtype=np.int64)
    for column in columns:
        code, known = pd.factorize(chosen[column])
        number = number * len(known) + code
    _, first, count = np.unique(number, return_index=True, return_counts=True)
    order = np.argsort(first)
    texts = chosen.iloc[first[order]].astype(str)
    return dict(zip(zip(*(texts[column] for column in columns), strict=True), count[order].tolist(), strict=True))


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
