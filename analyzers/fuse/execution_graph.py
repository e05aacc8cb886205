"""The graph of one step from an execution trace: the ops that compute, and the tensors between them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import cost_of_signature
from tracekit.analyzers.fuse.graph import Call, Graph, Node
from tracekit.analyzers.fuse.tensor_versions import TensorVersions, with_modules
from tracekit.analyzers.trace import ExecutedCall, TensorValue, ranges, tensors_in

_THREADS = tuple(f"[pytorch|profiler|execution_trace|{kind}]" for kind in ("thread", "process"))
_BACKWARD = "autograd::engine::evaluate_function"
_CALLING = """linear matmul layer_norm rms_norm group_norm batch_norm instance_norm softmax log_softmax dropout einsum
    scaled_dot_product_attention cross_entropy_loss nll_loss nll_loss_nd reshape flatten to contiguous type_as clone
    conv1d conv2d conv3d convolution repeat_interleave embedding_backward multi_head_attention_forward"""
COMPOSITE = frozenset(f"aten::{name}" for name in _CALLING.split())
"""Ops that only call other ops; a tracekit capture records those instead."""
_DEEPEST = 100
"""Levels of nested calls that are followed."""


@dataclass(frozen=True)
class ExecutedStep:
    """The graph of a step, and the call of each node."""

    graph: Graph
    records: tuple[tuple[int, ...], ...]
    """For each node, the ids in the profiler trace of its call and of those within it."""


@dataclass
class _Builder:
    children: dict[int, list[ExecutedCall]]
    costed: dict[int, tuple[Call, bool]]
    """Call -> its signature, and whether it computes."""
    inner: set[int]
    """Calls around one that computes."""
    versions: TensorVersions = field(default_factory=TensorVersions)
    calls: dict[Call, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    records: list[tuple[int, ...]] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    unread: dict[int, None] = field(default_factory=dict)
    """Tensors that an op has written and none has read."""


def graph_of(calls: Sequence[ExecutedCall]) -> ExecutedStep:
    """Return the graph of the last marked step (ProfilerStep), or of all calls if none is marked.

    Raises InputError if no op of it computes.
    """
    builder = _prepared(calls)
    for root in _roots(calls):
        _visit(builder, root, -1, 0)
    if not any(node.launches for node in builder.nodes):
        raise InputError(
            "The execution trace contains no op that computes.",
            "Nothing ran while it was recorded.",
            "Record a whole step.",
        )
    nodes = _with_forward(builder)
    trains = any(node.phase == "backward" for node in nodes)
    graph = Graph(tuple(builder.calls), (("", ""),), builder.versions.tensors, nodes, trains, named=False)
    return ExecutedStep(with_modules(graph), tuple(builder.records))


def _prepared(calls: Sequence[ExecutedCall]) -> _Builder:
    children: dict[int, list[ExecutedCall]] = defaultdict(list)
    parent = {call.id: call.parent for call in calls}
    costed, inner, known = dict[int, tuple[Call, bool]](), set[int](), dict[Call, bool]()
    for call in calls:
        if call.parent != call.id:
            children[call.parent].append(call)
    for call in reversed(calls):  # inner calls have higher ids
        computes = False
        if call.is_op:
            signature = _signature(call)
            if signature not in known:
                known[signature] = _computes(signature)
            computes = known[signature]
            costed[call.id] = signature, computes
        if computes or call.id in inner:
            inner.add(parent[call.id])
    return _Builder(children, costed, inner)


def _signature(call: ExecutedCall) -> Call:
    texts = ([_shape(each) for each in call.inputs], [_dtype(each) for each in call.inputs])
    strides = [_strides(each) for each in call.inputs]
    values = [_text(each) for each in call.inputs]
    shapes, dtypes, laid, known = (msgspec.json.encode(each).decode() for each in (*texts, strides, values))
    return Call(call.name, shapes, dtypes, laid, known)


def _shape(value: Any) -> Any:
    if isinstance(value, TensorValue):
        return value.shape
    return [each.shape for each in value] if isinstance(value, tuple) else []


def _strides(value: Any) -> Any:
    if isinstance(value, TensorValue):
        return value.strides
    return [each.strides for each in value] if isinstance(value, tuple) else []


def _dtype(value: Any) -> str:
    if isinstance(value, TensorValue):
        return value.dtype
    if isinstance(value, (tuple, list)):
        return "TensorList" if isinstance(value, tuple) else "ScalarList"
    return "" if value is None else "Scalar"


def _text(value: Any) -> str:
    return "" if value is None or isinstance(value, (TensorValue, tuple)) else str(value)


def _computes(call: Call) -> bool:
    """Return whether a call computes by itself: tracekit knows its cost, and it does not consist of other calls."""
    cost = cost_of_signature(call.name, call.shapes, call.dtypes, call.values, strides_json=call.strides)
    return call.name not in COMPOSITE and cost is not None


def _roots(calls: Sequence[ExecutedCall]) -> list[ExecutedCall]:
    """Return the outermost calls of the last marked step on every thread, or else all outermost calls."""
    threads = {call.id for call in calls if call.name in _THREADS}
    known = {call.id for call in calls}
    outermost = [c for c in calls if c.id not in threads and (c.parent in threads or c.parent not in known)]
    steps = [call.id for call in calls if ranges.PROFILER_STEP.fullmatch(call.name)]
    return [call for call in outermost if call.id >= steps[-1]] if steps else outermost


def _visit(builder: _Builder, call: ExecutedCall, sequence: int, depth: int) -> None:
    """Add the ops of a call. `sequence` is that of the backward op around it; -1: none."""
    inside = builder.children.get(call.id, [])
    if call.name.startswith(_BACKWARD):
        sequence = next((each.sequence for each in inside if each.sequence >= 0), -2)
    signature, computes = builder.costed.get(call.id, (None, False))
    if signature and (computes or call.id not in builder.inner):
        _add(builder, call, signature, sequence, computes)
    elif depth < _DEEPEST:
        for each in inside:
            _visit(builder, each, sequence, depth + 1)


def _add(builder: _Builder, call: ExecutedCall, signature: Call, sequence: int, computes: bool) -> None:
    read, made = tensors_in(call.inputs), list(call.outputs)
    memory = {each.storage for each in read}
    fresh = [each for each in made if each.storage not in memory]
    if not computes and not call.in_place and not (fresh and read):
        _without_work(builder, call, signature, sequence, read, made, fresh)
        return
    versions, written = builder.versions, {each.storage for each in made}
    if any(versions.is_empty(each) and each.storage not in written for each in read):
        _add_unrecorded(builder, [each for each in read if each.storage not in written], sequence)
    inputs = tuple(versions.read(each) for each in read)
    outputs = tuple(versions.written(each, in_place=each.storage in memory) for each in made)
    _node(builder, call, signature, sequence, inputs, outputs, launches=True)


def _add_unrecorded(builder: _Builder, read: list[TensorValue], sequence: int) -> None:
    """Add a node for code that is not an op, such as a library's kernel: it wrote tensors that ops read, and read
    tensors that no op wrote."""
    call = ExecutedCall(0, 0, "unrecorded", 0, -1, True, False, (), ())
    inputs = tuple(builder.unread)
    outputs = tuple(builder.versions.written(each, in_place=True) for each in read if builder.versions.is_empty(each))
    _node(builder, call, _signature(call), sequence, inputs, outputs, launches=True)


def _without_work(
    builder: _Builder,
    call: ExecutedCall,
    signature: Call,
    sequence: int,
    read: list[TensorValue],
    made: list[TensorValue],
    fresh: list[TensorValue],
) -> None:
    """Add a view as a node. Allocations are recorded as such, and ops that return their input are skipped."""
    for each in fresh:
        builder.versions.allocated(each)
    views = [each for each in made if each not in fresh and each not in read]
    if not views:
        return
    base = next(each for each in read if each.storage == views[0].storage)
    inputs = (builder.versions.read(base),)
    outputs = tuple(builder.versions.viewed(each) for each in views)
    _node(builder, call, signature, sequence, inputs, outputs, launches=False)


def _node(
    builder: _Builder,
    call: ExecutedCall,
    signature: Call,
    sequence: int,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    *,
    launches: bool,
) -> None:
    number = builder.calls.setdefault(signature, len(builder.calls))
    numbers = tuple(float(each) for each in call.inputs[:2] if type(each) in (int, float))
    phase = "" if sequence == -1 else "backward"
    for each in inputs:
        builder.unread.pop(each, None)
    builder.unread.update(dict.fromkeys(outputs))
    builder.nodes.append(Node(number, 0, phase, inputs, outputs, launches, sequence, numbers))
    builder.records.append(tuple(_calls_inside(builder, call, 0)))
    builder.sequences.append(call.sequence if sequence == -1 else -1)


def _calls_inside(builder: _Builder, call: ExecutedCall, depth: int) -> list[int]:
    inside = builder.children.get(call.id, []) if depth < _DEEPEST else []
    return [call.record, *(each for child in inside for each in _calls_inside(builder, child, depth + 1))]


def _with_forward(builder: _Builder) -> tuple[Node, ...]:
    """Return the nodes, those of the backward pass with the position of the op that they differentiate.

    Ops that need no gradient share the sequence number of the next op that does, so the last op with a number is used.
    """
    forward = {sequence: i for i, sequence in enumerate(builder.sequences) if sequence >= 0}
    return tuple(
        msgspec.structs.replace(node, forward=-1 if node.phase != "backward" else forward.get(node.forward, -2))
        for node in builder.nodes
    )
