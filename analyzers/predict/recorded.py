"""Facts that a trace records about the ops of a step in addition to the op list."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tracekit.analyzers.attribute import matching, take
from tracekit.analyzers.core import Bools, Floats, Ints
from tracekit.analyzers.predict.op_columns import Objects, OpList

_SOLVES = re.compile(r"^aten::_?(?:linalg_|cholesky|triangular_solve)")
_PLANS = re.compile(r"conv|mm|matmul|::_?linear|einsum|attention|rnn|lstm|gru|fft")
"""Ops whose libraries choose a kernel for each new shape."""


def _none(dtype: type) -> Callable[[], Any]:
    return lambda: np.zeros(0, dtype)


class Recorded(msgspec.Struct, frozen=True, eq=False):
    """Recorded facts about each op, by its number in the op list before optimizations."""

    copies: Objects = msgspec.field(default_factory=_none(object))
    """Name of the op's copy; "": the op is not a copy."""
    copied: Floats = msgspec.field(default_factory=_none(float))
    """Bytes that the op's copies move, as the driver recorded them; 0: not recorded."""
    planned_ns: Floats = msgspec.field(default_factory=_none(float))
    """Part of the op's host time, in nanoseconds, that plans its kernel for new shapes."""
    recording_ns: Floats = msgspec.field(default_factory=_none(float))
    """Part of the op's host time, in nanoseconds, that records CUDA graphs."""
    compiling: Bools = msgspec.field(default_factory=_none(bool))
    """Whether the op was launched during compilation, such as for autotuning."""
    blocks: Ints = msgspec.field(default_factory=_none(int))
    """Number of blocks in the grid of the op's first kernel; -1: not recorded."""
    multiplies_in: Objects = msgspec.field(default_factory=_none(object))
    """"fp32" or "tf32" if the name of one of the op's kernels states that it multiplies in it; "": none does."""
    unaligned: Bools = msgspec.field(default_factory=_none(bool))
    """Whether the name of one of the op's kernels says that it loads one or two elements at a time."""
    tile_side: Ints = msgspec.field(default_factory=_none(int))
    """Shorter side of the tile that the op's GEMM computes, by the name of its kernel; 0: not known."""
    layout_share: Floats = msgspec.field(default_factory=_none(float))
    """Fraction of the op's kernel time in kernels that copy images between channels first and channels last."""
    norm_share: Floats = msgspec.field(default_factory=_none(float))
    """Fraction of the op's kernel time in PyTorch's own kernels of batch norms in training with channels first."""
    doubles: Floats = msgspec.field(default_factory=_none(float))
    """Fraction of the op's kernel time in kernels that compute with 64-bit numbers, by their names."""
    elementwise: Floats = msgspec.field(default_factory=_none(float))
    """Fraction of the op's kernel time in elementwise kernels, by their names."""
    exposed: Floats = msgspec.field(default_factory=_none(float))
    """Fraction of the op's device time in copies and collectives during which nothing is computed."""
    queued: Floats = msgspec.field(default_factory=_none(float))
    """Time in nanoseconds for which the device was idle although the op's work was launched long before."""
    again: Bools = msgspec.field(default_factory=_none(bool))
    """Whether the op is one of the forward pass that the backward pass runs again."""
    again_ns: Floats = msgspec.field(default_factory=_none(float))
    """Host time before the op, in nanoseconds, that checkpointing takes."""
    differentiable: Bools = msgspec.field(default_factory=_none(bool))
    """Whether autograd recorded the op for a backward pass."""
    begun: Ints = msgspec.field(default_factory=_none(int))
    """Number of the next node of autograd's graph when the op's call began; -1: without gradients, or not recorded."""
    place: Objects = msgspec.field(default_factory=_none(object))
    """File and line of the function outside torch that called the op; "": no stacks, or a short function."""
    inputs: Objects = msgspec.field(default_factory=_none(object))
    """Shapes and types of the op's inputs, each as JSON; None: not recorded. Equal ones are one object."""
    strides: Objects = msgspec.field(default_factory=_none(object))
    """Shapes and strides of the op's inputs, each as JSON; None: not recorded."""
    numbers: Objects = msgspec.field(default_factory=_none(object))
    """Shapes and numbers of the op's inputs, each as JSON; None: not recorded."""
    nodes: Ints = msgspec.field(default_factory=_none(int))
    """Number of the node of autograd's graph whose backward pass the op is a part of; -1: none, or not recorded."""
    takes: Bools = msgspec.field(default_factory=_none(bool))
    """Whether the program took a part of a tensor, or added a batch of one, between the op before and the op."""
    selected: Bools = msgspec.field(default_factory=_none(bool))
    """Whether the program selected an item of a tensor between the op before and the op."""
    windows: Bools = msgspec.field(default_factory=_none(bool))
    """Whether the program made a view of overlapping windows between the op before and the op."""
    expanded: Bools = msgspec.field(default_factory=_none(bool))
    """Whether the program made a view of repeated rows between the op before and the op."""
    unbound: Objects = msgspec.field(default_factory=_none(object))
    """Shapes of the tensors that the program iterated over between the op before and the op; None: it did not."""
    emptied: Objects = msgspec.field(default_factory=_none(object))
    """Shapes of the tensors that the program made without writing them between the op before and the op; None: none."""
    mask: Objects = msgspec.field(default_factory=_none(object))
    """Dimensions of the mask that the caller of attention gave it; None: no mask, or no attention."""
    bluestein: Floats = msgspec.field(default_factory=_none(float))
    """Fraction of the op's kernel time in FFTs of lengths with a large prime factor, by their names."""
    until_wait: Floats = msgspec.field(default_factory=_none(float))
    """Fraction of the host time between the op's launch and the next that precedes the wait for the device."""
    to_free: Bools = msgspec.field(default_factory=_none(bool))
    """Whether the host waits after the op only to free memory of the device."""
    launched_ns: Ints = msgspec.field(default_factory=_none(int))
    """Time in the trace at which the host had launched the op."""
    wide_attention: Floats = msgspec.field(default_factory=_none(float))
    """Fraction of the op's kernel time in fused attention on 32-bit numbers, by their names."""

    def copies_like(self, ops: OpList, *patterns: re.Pattern[str]) -> npt.NDArray[np.bool_]:
        """Select the copies whose names contain a match of each pattern, such as TO_DEVICE."""
        names = _facts(ops, self.copies, "")
        return np.all([matching(names, pattern) for pattern in patterns], axis=0)

    def copied_bytes(self, ops: OpList) -> npt.NDArray[np.float64]:
        return _facts(ops, self.copied, 0.0)

    def products_in(self, ops: OpList) -> npt.NDArray[np.object_]:
        """Return the precision of each GEMM of unknown cost, by the name of its kernel; "" for others, and for those of
        solvers, which no setting narrows."""
        some = ~ops.costed & ~matching(ops.name, _SOLVES)
        return np.where(some, _facts(ops, self.multiplies_in, ""), "").astype(object)

    def unaligned_in(self, ops: OpList) -> npt.NDArray[np.bool_]:
        """Select the GEMMs of unknown cost that load one or two elements at a time, by the names of their
        kernels."""
        return _facts(ops, self.unaligned, False) & ~ops.costed

    def layout_shares(self, ops: OpList) -> npt.NDArray[np.float64]:
        return _facts(ops, self.layout_share, 0.0)

    def norms_channels_first(self, ops: OpList) -> npt.NDArray[np.bool_]:
        """Select the batch norms of unknown cost with channels first, by the names of PyTorch's own kernels."""
        return (_facts(ops, self.norm_share, 0.0) > 0) & ~ops.costed

    def double_shares(self, ops: OpList) -> npt.NDArray[np.float64]:
        return _facts(ops, self.doubles, 0.0)

    def attends_in_32_bits(self, ops: OpList) -> npt.NDArray[np.bool_]:
        """Select the ops that are mostly fused attention on 32-bit numbers, by the names of their kernels."""
        return _facts(ops, self.wide_attention, 0.0) > 1 / 2

    def bluestein_shares(self, ops: OpList) -> npt.NDArray[np.float64]:
        return _facts(ops, self.bluestein, 0.0)

    def inputs_of(self, ops: OpList) -> npt.NDArray[np.object_]:
        return _facts(ops, self.inputs, None)

    def takes_part(self, ops: OpList) -> npt.NDArray[np.bool_]:
        return _facts(ops, self.takes, False)

    def selects(self, ops: OpList) -> npt.NDArray[np.bool_]:
        return _facts(ops, self.selected, False)

    def reads_windows(self, ops: OpList) -> npt.NDArray[np.bool_]:
        return _facts(ops, self.windows, False)

    def reads_repeated(self, ops: OpList) -> npt.NDArray[np.bool_]:
        return _facts(ops, self.expanded, False)

    def iterated(self, ops: OpList) -> npt.NDArray[np.object_]:
        return _facts(ops, self.unbound, None)

    def made_empty(self, ops: OpList) -> npt.NDArray[np.object_]:
        return _facts(ops, self.emptied, None)

    def waits_to_free(self, ops: OpList) -> npt.NDArray[np.bool_]:
        return _facts(ops, self.to_free, False)

    def masks(self, ops: OpList) -> npt.NDArray[np.object_]:
        return _facts(ops, self.mask, None)

    def exposed_ns(self, ops: OpList) -> npt.NDArray[np.float64]:
        """Return the time of each copy and collective during which nothing is computed; that of ops that the trace did
        not record is their whole time."""
        return ops.kernel_ns * _facts(ops, self.exposed, 1.0)

    def queued_ns(self, ops: OpList) -> npt.NDArray[np.float64]:
        return _facts(ops, self.queued, 0.0)

    def elementwise_in(self, ops: OpList) -> npt.NDArray[np.bool_]:
        """Select the ops of unknown cost whose kernels are elementwise, by their names."""
        return (_facts(ops, self.elementwise, 0.0) == 1.0) & ~ops.costed

    def run_again(self, ops: OpList) -> npt.NDArray[np.bool_]:
        return _facts(ops, self.again, False)

    def without_checkpointing(self, ops: OpList) -> npt.NDArray[np.float64]:
        """Return the host time of each op, in nanoseconds, without that of checkpointing."""
        return np.maximum(ops.host_ns - _facts(ops, self.again_ns, 0.0), 0.0)

    def for_gradients(self, ops: OpList) -> npt.NDArray[np.bool_]:
        """Select the ops that autograd recorded for a backward pass."""
        return _facts(ops, self.differentiable, False)

    def has_node(self, ops: OpList) -> npt.NDArray[np.bool_]:
        """Select the ops whose calls made nodes of autograd's graph: the next call found a later one to be next."""
        begun, made = _facts(ops, self.begun, -1), np.zeros(len(ops), dtype=bool)
        known = np.flatnonzero((begun >= 0) & (ops.phase != "backward") & (ops.phase != "optimizer"))
        if len(known):
            numbers, calls = begun[known], ops.call[known]
            first = np.append(True, (numbers[1:] != numbers[:-1]) | (calls[1:] != calls[:-1]))
            of_calls = numbers[first]
            made[known] = np.append(of_calls[1:] != of_calls[:-1], True)[np.cumsum(first) - 1]
        return made

    def nodes_of(self, ops: OpList) -> npt.NDArray[np.int64]:
        return _facts(ops, self.nodes, -1)

    def places(self, ops: OpList) -> npt.NDArray[np.object_]:
        return _facts(ops, self.place, "")

    def strides_of(self, ops: OpList) -> npt.NDArray[np.object_]:
        return _facts(ops, self.strides, None)

    def planned(self, ops: OpList) -> npt.NDArray[np.float64]:
        """Return the planning time of each op in nanoseconds."""
        return matching(ops.name, _PLANS) * np.minimum(_facts(ops, self.planned_ns, 0.0), ops.host_ns)

    def numbers_of(self, ops: OpList) -> npt.NDArray[np.object_]:
        return _facts(ops, self.numbers, None)

    def recording(self, ops: OpList) -> npt.NDArray[np.float64]:
        """Return the time before each op, in nanoseconds, in which graphs are recorded."""
        return np.minimum(_facts(ops, self.recording_ns, 0.0), ops.host_ns)

    def while_compiling(self, ops: OpList) -> npt.NDArray[np.bool_]:
        return _facts(ops, self.compiling, False)

    def grids(self, ops: OpList) -> npt.NDArray[np.int64]:
        return _facts(ops, self.blocks, -1)

    def tile_sides(self, ops: OpList) -> npt.NDArray[np.int64]:
        return _facts(ops, self.tile_side, 0)

    def before_wait(self, ops: OpList, host_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the host time between each op's launch and the wait that follows it, of the next op's `host_ns`."""
        if not self.until_wait.any():
            return np.zeros(len(ops))
        later = _facts(ops, self.until_wait, 0.0) * np.append(host_ns[1:], 0.0)
        return np.where(ops.sync, later, 0.0)

    def scaled(self, factor: float) -> "Recorded":
        """Return a copy with host times multiplied by `factor`."""
        names = ("planned_ns", "recording_ns", "again_ns")
        return replace(self, **{name: getattr(self, name) * factor for name in names})


def _facts(ops: OpList, fact: npt.NDArray, absent: object) -> npt.NDArray:
    """Return a fact of each op; `absent` for ops that the trace did not record, whose numbers are larger."""
    return take(fact, np.where(ops.index < len(fact), ops.index, -1), absent)
