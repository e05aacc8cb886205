"""What a run on fake tensors leaves behind: op calls and ranges in host order."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class OpCall:
    """One distinct op call, in the profiler's spelling (JSON texts), and what it does to a GPU."""

    name: str
    shapes: str
    dtypes: str
    strides: str
    values: str
    launches: bool
    """It starts a kernel; views and allocations do not."""
    reads_back: bool
    """It copies a number to the host, which waits for it."""
    element_type: str
    """Of its first tensor; the profiler does not record it for lists of tensors."""
    read_bytes: int
    write_bytes: int
    elements: int
    """Elements of its outputs, or of its inputs where it returns nothing."""


@dataclass(frozen=True)
class Range:
    """A named range: the slots at which it opens and closes."""

    name: str
    opens: int
    closes: int


@dataclass(frozen=True)
class BackwardNode:
    """One evaluation of an autograd node."""

    name: str
    sequence: int
    """Sequence number of its forward op; -1: none (gradient accumulation)."""


@dataclass
class Recording:
    """The host's work in order, slot by slot: an op call, or the opening or closing of a range.

    Per slot: `call` indexes `calls` (-1: a range boundary), `sequence` is the autograd sequence number of a
    differentiable forward op, and `node` indexes `nodes` for ops of a backward pass (-1: none).
    """

    calls: list[OpCall] = field(default_factory=list)
    call: list[int] = field(default_factory=list)
    sequence: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    """Ordered by opening."""
    nodes: list[BackwardNode] = field(default_factory=list)
    peak_bytes: int = 0
    """The largest sum of live tensor storages, parameters included."""
