"""GEMMs: 2·m·n·k FLOPs per matrix (a fused bias adds no FLOPs, as in torch's own counter).

Recurrent layers of cuDNN are GEMMs of the inputs with the weights at once, and of the states step by step.
"""

from collections.abc import Sequence
from math import ceil, prod

from msgspec.structs import replace

from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.registry import costs
from tracekit.analyzers.cost.ops.tensors import DType, MalformedCall, Shape, Tensor, broadcast, promote
from tracekit.analyzers.cost.ops.work import Product, Recurrent, touched


def product(
    a: Tensor,
    b: Tensor,
    work: Product,
    *extra: Tensor | None,
    of_weights: Sequence[Tensor | None] = (),
    out: DType | None = None,
    compute: DType | None = None,
) -> Cost:
    """Return the cost of a @ b, which also reads `extra` and `of_weights` (biases, scales); all sequences share these.
    `out` and `compute` default to a's type."""
    result = Tensor((work.groups, work.m, work.n), out or a.dtype)
    return moves(
        "gemm",
        2 * work.groups * work.m * work.n * work.k,
        [a, b, *extra, *of_weights],
        [result],
        compute or promote([a, b]),
        weight={"a": a, "b": b, "": None}[work.weight],
        work=work,
        shared=of_weights,
        shared_results=[result] if work.gradient else [],
    )


def fit(condition: bool, name: str) -> None:
    if not condition:
        raise MalformedCall(f"{name}: sizes do not fit")


@costs("aten::mm")
def mm(call: Arguments) -> Cost:
    """A layer's GEMM: activations by weights, or the weights' gradient if the left operand is a transposed view."""
    a, b = call.tensor(0), call.tensor(1)
    (m, k), (inner, n) = _matrix(a.shape), _matrix(b.shape)
    fit(k == inner, call.name)
    gradient = _is_transposed(a) and not _is_transposed(b)
    work = Product(1, m, n, k, weight="" if gradient else "b", gradient=gradient)
    return product(a, b, work, out=call.dtype(2))


@costs("aten::addmm", "aten::addmm_", "aten::_addmm_activation")
def addmm(call: Arguments) -> Cost:
    bias, a, b = call.tensor(0), call.tensor(1), call.tensor(2)
    (m, k), (inner, n) = _matrix(a.shape), _matrix(b.shape)
    fit(k == inner, call.name)
    added = _unless_zero_beta(call, 3, bias)
    a_row = added is not None and len(added.shape) < 2
    work = Product(1, m, n, k, bias=added is not None, weight="b")
    return product(a, b, work, *([] if a_row else [added]), of_weights=[added] if a_row else [])


@costs("aten::bmm")
def bmm(call: Arguments) -> Cost:
    a, b = call.tensor(0), call.tensor(1)
    return product(a, b, _batched(a, b, call.name))


@costs("aten::baddbmm", "aten::baddbmm_")
def baddbmm(call: Arguments) -> Cost:
    added, a, b = _unless_zero_beta(call, 3, call.tensor(0)), call.tensor(1), call.tensor(2)
    return product(a, b, replace(_batched(a, b, call.name), bias=added is not None), added)


@costs("aten::addbmm", "aten::addbmm_")
def addbmm(call: Arguments) -> Cost:
    """The sum of a batch of GEMMs: one GEMM whose inner size is batch·k."""
    added, a, b = call.tensor(0), call.tensor(1), call.tensor(2)
    each, read = _batched(a, b, call.name), _unless_zero_beta(call, 3, added)
    work = Product(1, each.m, each.n, each.groups * each.k, bias=read is not None, gradient=True)
    return product(a, b, work, of_weights=[read])


@costs("aten::matmul")
def matmul(call: Arguments) -> Cost:
    a, b = call.tensor(0), call.tensor(1)
    fit(bool(a.shape and b.shape), call.name)
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    fit(left[-1] == right[-2], call.name)
    if len(right) == 2:
        return product(a, b, Product(1, prod(left[:-1]), right[-1], left[-1], weight="b" if len(b.shape) == 2 else ""))
    batch = prod(broadcast(left[:-2], right[:-2]))
    return product(a, b, Product(batch, left[-2], right[-1], left[-1]))


@costs("aten::linear")
def linear(call: Arguments) -> Cost:
    a, weight = call.tensor(0), call.tensor(1)
    (n, k) = _matrix(weight.shape)
    fit(a.shape[-1:] == (k,), call.name)
    bias = call.optional(2)
    work = Product(1, prod(a.shape[:-1]), n, k, bias=bias is not None, weight="b")
    return product(a, weight, work, of_weights=[bias])


@costs("aten::mv")
def mv(call: Arguments) -> Cost:
    matrix, vector = call.tensor(0), call.tensor(1)
    m, k = _matrix(matrix.shape)
    fit(vector.shape == (k,), call.name)
    return product(matrix, vector, Product(1, m, 1, k))


@costs("aten::addmv", "aten::addmv_")
def addmv(call: Arguments) -> Cost:
    added, matrix, vector = call.tensor(0), call.tensor(1), call.tensor(2)
    m, k = _matrix(matrix.shape)
    fit(vector.shape == (k,), call.name)
    read = _unless_zero_beta(call, 3, added)
    return product(matrix, vector, Product(1, m, 1, k, bias=read is not None), read)


@costs("aten::dot", "aten::vdot")
def dot(call: Arguments) -> Cost:
    a, b = call.tensor(0), call.tensor(1)
    fit(a.shape == b.shape and len(a.shape) == 1, call.name)
    return product(a, b, Product(1, 1, 1, a.numel))


@costs("aten::_grouped_mm")
def grouped_mm(call: Arguments) -> Cost:
    return grouped(call, call.optional(2), call.optional(3), out=call.dtype(4))


def grouped(call: Arguments, offsets: Tensor | None, *extra: Tensor | None, out: DType | None) -> Cost:
    """GEMMs of groups of unequal size; `offsets` divide the rows, the columns or the inner size.

    Group sizes are data, but the FLOPs depend only on their sum, which is a size of the operands. The routing of rows
    to experts is data too: the number of experts read is the mean number if each row selects any expert.
    """
    a, b = call.tensor(0), call.tensor(1)
    if len(a.shape) == len(b.shape) == 3:
        return product(a, b, _batched(a, b, call.name), offsets, *extra, out=out)
    fit(len(a.shape) in (2, 3) and len(b.shape) in (2, 3) and a.shape[-1] == b.shape[-2], call.name)
    if len(a.shape) == len(b.shape) == 2:
        return _gradients_of_experts(a, b, offsets, *extra, out=out)
    return _routed(a, b, offsets, *extra, out=out)


def _routed(a: Tensor, b: Tensor, *extra: Tensor | None, out: DType | None) -> Cost:
    """Return the GEMM with the operand that has a matrix per expert as the weights; the other operand's rows (or
    columns) are routed."""
    weights, rows = (b, a.shape[-2]) if len(b.shape) == 3 else (a, b.shape[-1])
    experts, k, sides = weights.shape[0], a.shape[-1], (a.shape[-2], b.shape[-1])
    groups = touched(rows, experts)
    mean = ceil(rows / groups)
    m, n = (mean, sides[1]) if weights is b else (sides[0], mean)
    work = Product(groups, m, n, k, weight="b" if weights is b else "a", routed=rows, experts=experts)
    read = weights.like((groups, *weights.shape[1:]))
    operands = [a, read] if weights is b else [read, b]
    result = Tensor(sides, out or a.dtype)
    flops = 2 * sides[0] * sides[1] * k
    return moves("gemm", flops, [*operands, *extra], [result], promote([a, b]), weight=read, work=work, shared=extra)


def _gradients_of_experts(
    a: Tensor, b: Tensor, offsets: Tensor | None, *extra: Tensor | None, out: DType | None
) -> Cost:
    """Gradients of experts' weights: each group of the inner size has its own result."""
    groups = max(1, offsets.numel) if offsets is not None else 1
    m, n, k = a.shape[0], b.shape[1], a.shape[1]
    result = Tensor((groups, m, n), out or a.dtype)
    work = Product(groups, m, n, k // groups, gradient=True)
    read, shared = [a, b, offsets, *extra], [offsets, *extra]
    flops = 2 * m * n * k
    return moves("gemm", flops, read, [result], promote([a, b]), work=work, shared=shared, shared_results=[result])


def _is_transposed(tensor: Tensor) -> bool:
    """Return whether the tensor's columns are contiguous, by its strides."""
    if tensor.strides is None or 1 in tensor.shape:
        return False
    return tensor.strides[0] == 1 < tensor.strides[1]


def _matrix(shape: Shape) -> tuple[int, int]:
    if len(shape) != 2:
        raise MalformedCall(f"{shape} is not a matrix")
    return shape[0], shape[1]


def _batched(a: Tensor, b: Tensor, name: str) -> Product:
    fit(len(a.shape) == len(b.shape) == 3 and a.shape[0] == b.shape[0] and a.shape[2] == b.shape[1], name)
    return Product(a.shape[0], a.shape[1], b.shape[2], a.shape[2])


def _unless_zero_beta(call: Arguments, index: int, added: Tensor) -> Tensor | None:
    """Return the added tensor; None if beta = 0, because it is then not read."""
    return None if call.number(index, 1) == 0 else added


GATES = {0: 1, 1: 1, 2: 4, 3: 3}
"""Gates by cuDNN's mode: RNN with ReLU or tanh, LSTM, GRU."""


@costs("aten::_cudnn_rnn")
def forward(call: Arguments) -> Cost:
    """(input, weight, weight_stride0, weight_buf, hx, cx, mode, hidden_size, proj_size, num_layers, batch_first,
    dropout, train, bidirectional, batch_sizes, dropout_state)."""
    x, weights, state = call.tensor(0), call.tensors(1), call.every(4, 6)
    work = _work(call, 6, backward=False)
    written = [x.like((work.rows, work.directions * work.output)), *state]
    return _cost(work, [x, *state], written, weights, x)


@costs("aten::_cudnn_rnn_backward")
def backward(call: Arguments) -> Cost:
    """(input, weight, weight_stride0, weight_buf, hx, cx, output, grad_output, grad_hy, grad_cy, mode, hidden_size,
    proj_size, num_layers, batch_first, dropout, train, bidirectional, batch_sizes, dropout_state, reserve, ...)."""
    x, weights, state = call.tensor(0), call.tensors(1), call.every(4, 6)
    reads = [x, *call.every(4, 10), call.optional(20)]
    return _cost(_work(call, 10, backward=True), reads, [x, *state, *_typed(weights, x)], weights, x)


def _cost(work: Recurrent, reads: list[Tensor | None], writes: list[Tensor], weights: list[Tensor], x: Tensor) -> Cost:
    held = _typed(weights, x)
    whole = Tensor((sum(each.numel for each in held),), x.dtype)
    results = held if work.backward else []
    return moves("other", work.flops, [*reads, whole], writes, x.dtype, weight=whole, work=work, shared_results=results)


def _typed(weights: list[Tensor], x: Tensor) -> list[Tensor]:
    """Return the weights in the type of the input: traces do not record that of a list."""
    return [each.like(dtype=x.dtype) for each in weights]


def _work(call: Arguments, mode: int, *, backward: bool) -> Recurrent:
    x, state, sizes = call.tensor(0), call.tensor(4), call.integers(mode + 8)
    gates = GATES.get(call.integer(mode, -1))
    if gates is None or len(x.shape) < 2:
        raise MalformedCall("the mode of the layer is not recorded")
    packed = len(x.shape) == 2
    steps = len(sizes or ()) if packed else x.shape[1 if call.flag(mode + 4) else 0]
    rows = x.numel // max(1, x.shape[-1])
    return Recurrent(
        steps=max(1, steps),
        rows=rows,
        inputs=x.shape[-1],
        hidden=call.integer(mode + 1),
        output=state.shape[-1],
        gates=gates,
        layers=call.integer(mode + 3),
        directions=2 if call.flag(mode + 7) else 1,
        backward=backward,
    )
