"""Embedding tables of recommendation models, and their sparse features: FBGEMM's table-batched lookups, its ops over
jagged tensors, and its conversions for communication.

Schemas: pytorch/FBGEMM, fbgemm_gpu/codegen (embedding_*_split_template) and fbgemm_gpu/src (sparse_ops,
jagged_tensor_ops, permute_pooled_embedding_ops, permute_multi_embedding_ops, quantize_ops, merge_pooled_embedding_ops).
Positions differ between releases, so indices and offsets are located as two integer tensors after a number.
"""

from math import prod

from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.gemm import fit, product
from tracekit.analyzers.cost.ops.registry import formula
from tracekit.analyzers.cost.ops.tensors import DTYPES, FLOAT32, Kind, MalformedCall, Tensor
from tracekit.analyzers.cost.ops.work import Lookup, Product, Softmax

_UPDATE_FLOPS = 6
"""FLOPs per gradient element: its sum, its square, the state, and the update."""
_NOT_POOLED, _MATRIX = 2, 2
_BYTE = DTYPES["uint8"]


@formula
def table_lookup(call: Arguments) -> Cost:
    """Rows of tables, summed per bag: one row of all tables' sums per sample, or the rows themselves."""
    weights = call.tensor(_first_weights(call))
    at = _indices_at(call)
    indices, offsets = call.tensor(at), call.tensor(at + 1)
    width, tables = _total_width(call, at), _tables(call, at)
    rows = Tensor((indices.numel, max(1, width // tables)), weights.dtype)
    out = rows if call.integer(at + 2, 0) == _NOT_POOLED else Tensor(((offsets.numel - 1) // tables, width), FLOAT32)
    reads = [rows, indices, offsets]
    return moves(
        "embedding", rows.numel, reads, [out.like(dtype=FLOAT32)], FLOAT32, run=rows.shape[1], work=Lookup(True)
    )


@formula
def table_update(call: Arguments) -> Cost:
    """(gradient, weights, ...): reads, updates and writes each looked-up row."""
    gradient, weights = call.tensor(0), call.tensor(1)
    at = _indices_at(call)
    indices, offsets = call.tensor(at), call.tensor(at + 1)
    width = gradient.shape[-1] // _tables(call, at) if call.integer(at + 2, 0) != _NOT_POOLED else gradient.shape[-1]
    rows = Tensor((indices.numel, max(1, width)), weights.dtype)
    flops = _UPDATE_FLOPS * rows.numel
    return moves(
        "embedding", flops, [gradient, rows, indices, offsets], [rows], FLOAT32, run=rows.shape[1], work=Lookup(True)
    )


def _first_weights(call: Arguments) -> int:
    """Return the first tensor of weights. Autograd's placeholder, with at most one element, may precede it."""
    first = call.tensor(0)
    return 1 if first.numel <= 1 and call.optional(1) is not None else 0


def _indices_at(call: Arguments) -> int:
    """Return the position of the indices; the offsets follow them."""
    for index in range(1, len(call) - 1):
        if call.is_scalar(index - 1) and _is_integer(call, index) and _is_integer(call, index + 1):
            return index
    raise MalformedCall(f"{call.name}: no indices with offsets")


def _is_integer(call: Arguments, index: int) -> bool:
    tensor = call.optional(index)
    return tensor is not None and tensor.dtype.kind == Kind.INTEGER


def _first_number(call: Arguments) -> int:
    """Return the position of the first number: the total width of a lookup, which follows the tables' column
    offsets."""
    return next((index for index in range(len(call)) if call.is_scalar(index)), len(call))


def _total_width(call: Arguments, before: int) -> int:
    width = call.integer(_first_number(call))
    if width < 1 or _first_number(call) >= before:
        raise MalformedCall(f"{call.name}: no total width")
    return width


def _tables(call: Arguments, before: int) -> int:
    """Return the number of tables: one less than the column offsets, the integer tensor before the first number."""
    columns = call.optional(min(_first_number(call), before) - 1)
    if columns is None or columns.numel < 2:
        raise MalformedCall(f"{call.name}: no column offsets")
    return columns.numel - 1


@formula
def quantized_lookup(call: Arguments) -> Cost:
    """(..., column offsets, total width, most columns of 2, 4, 8, 16 and 32 bits, indices, offsets, ...): rows of the
    widest type that the tables have, with its scale and offset where it is an integer."""
    first, at = _first_number(call), _indices_at(call)
    indices, offsets = call.tensor(at), call.tensor(at + 1)
    width, tables = _total_width(call, at), _tables(call, at)
    widest = max((bits for place, bits in enumerate(_BITS, first + 1) if call.integer(place, 0)), default=_BITS[2])
    row = width // tables * widest // 8 + _SCALES * (widest <= _BITS[2])
    rows = Tensor((indices.numel, row), DTYPES["uint8"])
    out = Tensor(((offsets.numel - 1) // tables, width), DTYPES["float16"])
    flops = 2 * indices.numel * width // tables
    return moves("embedding", flops, [rows, indices, offsets], [out], FLOAT32, run=row, work=Lookup(True))


_BITS, _SCALES = (2, 4, 8, 16, 32), 4
"""_SCALES: bytes of a row's scale and offset."""


@formula
def move_sparse(call: Arguments, payload: int) -> Cost:
    """Reads every input; rearranges and writes the tensors from `payload` to the first input that is not a tensor."""
    inputs, written = call.every(), []
    for index in range(payload, len(call)):
        if (tensor := call.optional(index)) is None:
            break
        written.append(tensor)
    if not written:
        raise MalformedCall(f"{call.name}: nothing is moved")
    return moves("gather", 0, inputs, written, written[0].dtype, access="indexed")


@formula
def gradient_of_permutation(call: Arguments) -> Cost:
    """(gradients[samples, width])."""
    gradient = call.tensor(0)
    return moves("gather", 0, [gradient], [gradient], gradient.dtype, access="indexed")


@formula
def cumulative_sum(call: Arguments) -> Cost:
    """(lengths)."""
    x = call.tensor(0)
    return moves("reduction", x.numel, [x], [x], x.dtype, access="scan", row=x.shape[-1] if x.shape else 1)


@formula
def bounds_check(call: Arguments) -> Cost:
    """(rows_per_table, indices, offsets, ...): reads them; writes only entries out of bounds."""
    return moves("gather", 0, call.every(0, 3), [], call.tensor(1).dtype)


@formula
def jagged_with_dense(call: Arguments) -> Cost:
    """(values, offsets, dense): an element of the result for each value; padding is not counted."""
    values = call.tensor(0)
    return moves("pointwise", values.numel, [values, *call.every(1)], [values], values.dtype, access="indexed")


@formula
def rearrange_list(call: Arguments) -> Cost:
    """Reads and writes a list of tensors; those of the other inputs are small."""
    at = next((index for index in range(len(call)) if call.is_list(index)), 0)
    moved = call.tensors(at)
    fit(len(moved) > 0, call.name)
    return moves("gather", 0, moved, moved, moved[0].dtype, access="indexed")


@formula
def jagged_product(call: Arguments, dense: int) -> Cost:
    """(rows[rows, k], offsets, matrices[batch, k, n], ...), or (rows[rows, m], rows[rows, n], offsets, ...)."""
    rows, other = call.tensor(0), call.tensor(dense)
    fit(len(rows.shape) == _MATRIX, call.name)
    columns = other.shape[-1]
    batch = other.shape[0] if dense == _MATRIX else max(1, sum(each.numel for each in _offsets(call)) - 1)
    result = rows.like((rows.shape[0] if dense == _MATRIX else batch * rows.shape[1], columns))
    work = Product(batch, max(1, rows.shape[0] // batch), columns, rows.shape[1])
    flops = 2 * rows.numel * columns
    return moves("gemm", flops, [rows, other], [result], rows.dtype, work=work)


def _offsets(call: Arguments) -> list[Tensor]:
    return [each for each in call.every(2) if each.dtype != FLOAT32][:1]


@formula
def batched_linear(call: Arguments) -> Cost:
    """(bias[batch, n], inputs[m, batch, k], weights[batch, k, n])."""
    a, b = call.tensor(1), call.tensor(2)
    m, groups, inner = a.shape
    fit(b.shape[:2] == (groups, inner), call.name)
    work = Product(groups, m, b.shape[2], inner, bias=True, weight="b")
    return product(a, b, work, of_weights=[call.optional(0)])


@formula
def jagged_softmax(call: Arguments) -> Cost:
    """(values, offsets, ...)."""
    x = call.tensor(0)
    return moves("softmax", 5 * x.numel, [x], [x], x.dtype, row=x.shape[-1], work=Softmax())


@formula
def select_rows(call: Arguments) -> Cost:
    """(input, indices, ...)."""
    x, indices = call.tensor(0), call.tensor(1)
    rows = x.like((indices.numel, *x.shape[1:]))
    return moves("gather", 0, [rows, indices], [rows], x.dtype, access="indexed", run=prod(x.shape[1:]))


@formula
def select_rows_of_each(call: Arguments) -> Cost:
    """(inputs, indices): two lists."""
    inputs, indices = call.tensors(0), call.tensors(1)
    rows = [x.like((i.numel, *x.shape[1:])) for x, i in zip(inputs, indices, strict=True)]
    return moves("gather", 0, rows, rows, inputs[0].dtype, access="indexed")


@formula
def segment_sum(call: Arguments) -> Cost:
    """(batch size, segments, values)."""
    segments, values = call.tensor(1), call.tensor(2)
    sums = values.like((max(0, segments.numel - 1),))
    return moves("reduction", values.numel, [segments, values], [sums], values.dtype, access="rows")


@formula
def offsets_range(call: Arguments) -> Cost:
    """(offsets, length)."""
    offsets = call.tensor(0)
    return moves("pointwise", 0, [offsets], [offsets.like((call.integer(1),))], offsets.dtype)


@formula
def unique_indices(call: Arguments) -> Cost:
    """(indices, ...)."""
    x = call.tensor(0)
    return moves("gather", 0, [x], [x], x.dtype, access="sort")


@formula
def convert(call: Arguments, to: int = 0, bits: int = -1, packed: int = -1, scales: int = 0) -> Cost:
    """(input, ...): to a type of `to` bits, or of as many as the input at `bits` says, with `scales` bytes for each
    row; from a type of as many as the input at `packed` says, if there is one."""
    x = call.tensor(0)
    rows = x.numel // max(1, x.shape[-1]) if x.shape else 0
    before = max(1, call.integer(packed, 4)) if packed >= 0 else 8
    after = call.integer(bits, 4) if bits >= 0 else to
    written = Tensor((x.numel * after // before + scales * rows,), _BYTE)
    return moves("pointwise", 2 * x.numel, [x], [written], FLOAT32)
