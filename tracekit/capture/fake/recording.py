"""The recording of a run that is to be modelled: op calls and ranges in host order."""

from dataclasses import dataclass, field
from typing import Literal

from tracekit.analyzers.cost import Message

Operands = tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]
"""The tensors that an op reads and writes, by their numbers, and the numbers among its first two arguments."""
Copies = Literal["", "to host", "to device"]


@dataclass(frozen=True)
class OpCall:
    """One distinct op call as the profiler describes it (JSON texts), and its effect on a GPU."""

    name: str
    shapes: str
    dtypes: str
    strides: str
    values: str
    launches: bool
    """Whether it launches a kernel; views and allocations do not."""
    copies: Copies
    """The direction of a copy between pageable host memory and the device, for which the host waits."""
    element_type: str
    """Element type of the first tensor, which the profiler does not record for lists of tensors."""
    read_bytes: int
    write_bytes: int
    elements: int
    """Number of elements of its outputs; of its inputs if it has no outputs."""
    message: Message | None = None
    """The message of a collective; None for other ops."""

    @property
    def copied_bytes(self) -> int:
        """Bytes that a copy moves over the link. A change of type happens at one end."""
        return max(self.read_bytes, self.write_bytes)


@dataclass(frozen=True)
class Range:
    """A named range, from the slot that opens it to the slot that closes it."""

    name: str
    opens: int
    closes: int


@dataclass(frozen=True)
class BackwardNode:
    """One evaluation of an autograd node."""

    name: str
    sequence: int
    """Sequence number of its forward op; -1 for none (gradient accumulation)."""


@dataclass(frozen=True)
class ReadyGradient:
    """The gradient of a parameter, once it is accumulated."""

    slot: int
    """Number of slots before it was ready."""
    shape: tuple[int, ...]
    element_type: str


@dataclass(frozen=True)
class Move:
    """Memory that is allocated before a slot, or freed (negative bytes)."""

    slot: int
    block: int
    bytes: int
    live_bytes: int
    """Bytes that are allocated from then on."""


@dataclass
class Recording:
    """The host's work in order, one slot for each op call and for each opening or closing of a range.

    By slot: `call` is an index into `calls` (-1 at a range boundary), `sequence` the autograd sequence number of a
    differentiable forward op, and `node` an index into `nodes` for ops of a backward pass (-1: none).
    """

    calls: list[OpCall] = field(default_factory=list)
    call: list[int] = field(default_factory=list)
    sequence: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    """The ranges in order of opening."""
    nodes: list[BackwardNode] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    """For each slot, the slot of the latest collective whose result it reads; -1: none."""
    tensors: list[Operands] = field(default_factory=list)
    """Operands of each slot."""
    shapes: list[tuple[tuple[int, ...], str]] = field(default_factory=list)
    """Shape and type of each tensor, by its number."""
    gradients: list[ReadyGradient] = field(default_factory=list)
    """Gradients of parameters, in the order in which they became ready."""
    moves: list[Move] = field(default_factory=list)
    collectives: list[int] = field(default_factory=list)
    """The slots of collectives."""
    composite: set[str] = field(default_factory=set)
    """Paths of the modules that return anything other than one tensor."""
    peak_bytes: int = 0
    """The largest sum of live tensor storages, including parameters."""


class RecordingBuilder:
    """Builds a recording op by op. It is an emitter of ranges (tracekit.capture.emitted_ranges)."""

    def __init__(self) -> None:
        self.recording = Recording()
        self._open: list[int] = []

    def push(self, name: str) -> None:
        self._open.append(len(self.recording.ranges))
        slot = self.append(-1)
        self.recording.ranges.append(Range(name, slot, slot))

    def pop(self) -> None:
        index = self._open.pop()
        opened = self.recording.ranges[index]
        self.recording.ranges[index] = Range(opened.name, opened.opens, self.append(-1))

    def move(self, block: int, size: int, live_bytes: int) -> None:
        if size:
            self.recording.moves.append(Move(len(self.recording.call), block, size, live_bytes))

    def is_open(self, prefix: str) -> bool:
        """Return whether a range with this prefix is open."""
        return any(self.recording.ranges[index].name.startswith(prefix) for index in self._open)

    def close(self) -> None:
        """Close all open ranges."""
        while self._open:
            self.pop()

    def forget_last_frees(self) -> None:
        """Forget the frees after the last op, because the end of a program frees everything."""
        recording = self.recording
        last = max((slot for slot, call in enumerate(recording.call) if call >= 0), default=-1)
        recording.moves = [each for each in recording.moves if each.bytes > 0 or each.slot <= last]

    def gradient(self, shape: tuple[int, ...], element_type: str) -> None:
        """Record that a parameter's gradient is ready."""
        self.recording.gradients.append(ReadyGradient(len(self.recording.call), shape, element_type))

    def append(
        self,
        call: int,
        sequence: int = -1,
        node: int = -1,
        tensors: Operands = ((), (), ()),
        waits: int = -1,
    ) -> int:
        """Append a slot and return its number."""
        recording = self.recording
        recording.tensors.append(tensors)
        recording.call.append(call)
        recording.sequence.append(sequence)
        recording.node.append(node)
        recording.waits.append(waits)
        return len(recording.call) - 1
