"""Matrix products: 2·m·n·k FLOPs a matrix (a fused bias adds no FLOPs, as in torch's own counter)."""

from math import prod

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost, Gemm
from tracekit.analyzers.costs.dtypes import DType
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import MalformedCall, Shape, Tensor, broadcast, promote


def product(
    a: Tensor,
    b: Tensor,
    shape: Gemm,
    *extra: Tensor | None,
    out: DType | None = None,
    compute: DType | None = None,
    weight: bool = False,
) -> Cost:
    """The cost of a @ b, reading `extra` as well; `out` and `compute` are a's type unless given."""
    result = Tensor((shape.batch, shape.m, shape.n), out or a.dtype)
    flops = 2 * shape.batch * shape.m * shape.n * shape.k
    dtype = compute or promote([a, b])
    return moves("gemm", flops, [a, b, *extra], [result], dtype, weight=b if weight else None, shape=shape)


def fit(condition: bool, name: str) -> None:
    if not condition:
        raise MalformedCall(f"{name}: sizes do not fit")


@costs("aten::mm")
def mm(call: Arguments) -> Cost:
    a, b = call.tensor(0), call.tensor(1)
    (m, k), (inner, n) = _matrix(a.shape), _matrix(b.shape)
    fit(k == inner, call.name)
    return product(a, b, Gemm(1, m, n, k), out=call.dtype(2), weight=True)


@costs("aten::addmm", "aten::addmm_", "aten::_addmm_activation")
def addmm(call: Arguments) -> Cost:
    bias, a, b = call.tensor(0), call.tensor(1), call.tensor(2)
    (m, k), (inner, n) = _matrix(a.shape), _matrix(b.shape)
    fit(k == inner, call.name)
    return product(a, b, Gemm(1, m, n, k), _unless_zero_beta(call, 3, bias), weight=True)


@costs("aten::bmm")
def bmm(call: Arguments) -> Cost:
    a, b = call.tensor(0), call.tensor(1)
    return product(a, b, _batched(a, b, call.name))


@costs("aten::baddbmm", "aten::baddbmm_")
def baddbmm(call: Arguments) -> Cost:
    added, a, b = call.tensor(0), call.tensor(1), call.tensor(2)
    return product(a, b, _batched(a, b, call.name), _unless_zero_beta(call, 3, added))


@costs("aten::addbmm", "aten::addbmm_")
def addbmm(call: Arguments) -> Cost:
    """Sums the products of a batch: one GEMM whose inner size is batch·k."""
    added, a, b = call.tensor(0), call.tensor(1), call.tensor(2)
    each = _batched(a, b, call.name)
    return product(a, b, Gemm(1, each.m, each.n, each.batch * each.k), _unless_zero_beta(call, 3, added))


@costs("aten::matmul")
def matmul(call: Arguments) -> Cost:
    a, b = call.tensor(0), call.tensor(1)
    fit(bool(a.shape and b.shape), call.name)
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    fit(left[-1] == right[-2], call.name)
    if len(right) == 2:
        gemm = Gemm(1, prod(left[:-1]), right[-1], left[-1])
        return product(a, b, gemm, weight=len(b.shape) == 2)
    batch = prod(broadcast(left[:-2], right[:-2]))
    return product(a, b, Gemm(batch, left[-2], right[-1], left[-1]))


@costs("aten::linear")
def linear(call: Arguments) -> Cost:
    a, weight = call.tensor(0), call.tensor(1)
    (n, k) = _matrix(weight.shape)
    fit(a.shape[-1:] == (k,), call.name)
    return product(a, weight, Gemm(1, prod(a.shape[:-1]), n, k), call.optional(2), weight=True)


@costs("aten::mv")
def mv(call: Arguments) -> Cost:
    matrix, vector = call.tensor(0), call.tensor(1)
    m, k = _matrix(matrix.shape)
    fit(vector.shape == (k,), call.name)
    return product(matrix, vector, Gemm(1, m, 1, k))


@costs("aten::addmv", "aten::addmv_")
def addmv(call: Arguments) -> Cost:
    added, matrix, vector = call.tensor(0), call.tensor(1), call.tensor(2)
    m, k = _matrix(matrix.shape)
    fit(vector.shape == (k,), call.name)
    return product(matrix, vector, Gemm(1, m, 1, k), _unless_zero_beta(call, 3, added))


@costs("aten::dot", "aten::vdot")
def dot(call: Arguments) -> Cost:
    a, b = call.tensor(0), call.tensor(1)
    fit(a.shape == b.shape and len(a.shape) == 1, call.name)
    return product(a, b, Gemm(1, 1, 1, a.numel))


@costs("aten::_grouped_mm")
def grouped_mm(call: Arguments) -> Cost:
    return grouped(call, call.optional(2), call.optional(3), out=call.dtype(4))


def grouped(call: Arguments, offsets: Tensor | None, *extra: Tensor | None, out: DType | None) -> Cost:
    """Products of groups of unequal size, cut out of the rows, the columns or the inner size by `offsets`.

    The groups' sizes are data, but the FLOPs depend only on their sum, which is a size of the operands.
    """
    a, b = call.tensor(0), call.tensor(1)
    reads = (offsets, *extra)
    if len(a.shape) == len(b.shape) == 3:
        return product(a, b, _batched(a, b, call.name), *reads, out=out)
    fit(len(a.shape) in (2, 3) and len(b.shape) in (2, 3) and a.shape[-1] == b.shape[-2], call.name)
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    if len(a.shape) == len(b.shape) == 2 and offsets is not None:  # each group of the inner size has its own result
        results = Tensor((offsets.numel, m, n), out or a.dtype)
        gemm = Gemm(offsets.numel, m, n, k // max(offsets.numel, 1))
        return moves("gemm", 2 * m * n * k, [a, b, *reads], [results], promote([a, b]), shape=gemm)
    return product(a, b, Gemm(1, m, n, k), *reads, out=out)


def _matrix(shape: Shape) -> tuple[int, int]:
    if len(shape) != 2:
        raise MalformedCall(f"{shape} is not a matrix")
    return shape[0], shape[1]


def _batched(a: Tensor, b: Tensor, name: str) -> Gemm:
    fit(len(a.shape) == len(b.shape) == 3 and a.shape[0] == b.shape[0] and a.shape[2] == b.shape[1], name)
    return Gemm(a.shape[0], a.shape[1], b.shape[2], a.shape[2])


def _unless_zero_beta(call: Arguments, index: int, added: Tensor) -> Tensor | None:
    """With beta = 0 the added tensor is not read."""
    return None if call.number(index, 1) == 0 else added
