"""Embedding tables of recommendation models: FBGEMM's table-batched lookups and sparse feature transformations.

Schemas: pytorch/FBGEMM, fbgemm_gpu/codegen (embedding_*_split_template) and fbgemm_gpu/src/sparse_ops. Positions differ
between releases, so indices and offsets are located as two integer tensors after a number.
"""

from tracekit.analyzers.cost.ops.arguments import Arguments, costs, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.tensors import DTYPES, FLOAT32, Kind, MalformedCall, Tensor
from tracekit.analyzers.cost.ops.work import Lookup

_OPTIMIZERS = (
    "adagrad",
    "adam",
    "adamw",
    "ema",
    "lamb",
    "lars_sgd",
    "none",
    "partial_rowwise_adam",
    "partial_rowwise_lamb",
    "rowwise_adagrad",
    "rowwise_adagrad_with_counter",
    "rowwise_weighted_adagrad",
    "sgd",
    "approx_rowwise_adagrad",
    "approx_sgd",
)
_UPDATE_FLOPS = 6
"""FLOPs per gradient element: its sum, its square, the state, and the update."""
_NOT_POOLED = 2


def lookup(call: Arguments) -> Cost:
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


def update(call: Arguments) -> Cost:
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


def gradient_of_lookup(call: Arguments) -> Cost:
    """(gradients ...) of autograd's node: the rows are not among its inputs, so bytes are a lower bound."""
    gradients = call.every()
    if not gradients:
        raise MalformedCall(f"{call.name}: no gradient")
    return moves("embedding", 0, gradients, gradients, gradients[0].dtype, work=Lookup(True), estimated=True)


@costs("fbgemm::int_nbit_split_embedding_codegen_lookup_function")
@costs("fbgemm::int_nbit_split_embedding_uvm_caching_codegen_lookup_function")
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

for _optimizer in _OPTIMIZERS:
    _nodes = [f"Split{kind}LookupFunction_{_optimizer}_Op{end}" for kind in ("", "NoBag") for end in ("", "_pt2")]
    costs(*(f"torch::autograd::CppNode<{name}>" for name in _nodes))(gradient_of_lookup)
    costs(*(f"CppNode<{name}>" for name in _nodes))(gradient_of_lookup)
    _names = [f"split_embedding_codegen_lookup_{_optimizer}_function{end}" for end in ("", "_pt2")]
    costs(*(f"fbgemm::{name}" for name in _names))(lookup)
    for _weighted in ("weighted", "unweighted"):
        for _pooled in ("", "_nobag"):
            _exact = f"split_embedding{_pooled}_backward_codegen_{_optimizer}_{_weighted}_exact_cuda"
            costs(f"fbgemm::{_exact}", f"fbgemm::{_exact.removesuffix('_cuda')}_pt2_wrapper")(update)
            costs(f"fbgemm::{_exact.removesuffix('_exact_cuda')}_pt2_wrapper")(update)
for _weighted in ("weighted", "unweighted"):
    for _kind in ("", "_nobag"):
        costs(f"fbgemm::split_embedding{_kind}_codegen_forward_{_weighted}_cuda")(lookup)
        costs(f"fbgemm::split_embedding{_kind}_codegen_forward_{_weighted}_pt2_wrapper")(lookup)
        costs(f"fbgemm::split_embedding{_kind}_codegen_forward_{_weighted}_vbe_cuda")(lookup)
        costs(f"fbgemm::dense_embedding{_kind}_codegen_forward_{_weighted}_cuda")(lookup)
costs("fbgemm::dense_embedding_codegen_lookup_function")(lookup)


@costs("fbgemm::permute_2D_sparse_data", "fbgemm::permute_1D_sparse_data", "fbgemm::permute_sparse_data", payload=1)
@costs("fbgemm::block_bucketize_sparse_features", "fbgemm::bucketize_sparse_features", payload=0)
@costs("fbgemm::permute_pooled_embs", "fbgemm::permute_pooled_embs_auto_grad", payload=0)
@costs("fbgemm::jagged_to_padded_dense", "fbgemm::jagged_2d_to_dense", "fbgemm::jagged_1d_to_dense", payload=0)
@costs("fbgemm::dense_to_jagged", "fbgemm::expand_into_jagged_permute", payload=0)
@costs("fbgemm::linearize_cache_indices", "fbgemm::lengths_range", payload=1)
@costs("fbgemm::permute_2D_sparse_data_input1D", "fbgemm::permute_1D_data", "fbgemm::permute_2D_data", payload=1)
@costs("fbgemm::permute_sparse_features", "fbgemm::reorder_batched_ad_indices", payload=1)
@costs("fbgemm::reorder_batched_sequence_embeddings", "fbgemm::linearize_cache_indices_from_row_idx", payload=1)
@costs("fbgemm::block_bucketize_sparse_features_inference", payload=0)
@costs("fbgemm::block_bucketize_sparse_features_2d_weights", "fbgemm::populate_bucketized_permute", payload=0)
@costs("fbgemm::permute_pooled_embs_split", "fbgemm::permute_pooled_embs_auto_grad_split", payload=0)
@costs("fbgemm::permute_duplicate_pooled_embs_auto_grad", "fbgemm::reorder_batched_ad_lengths", payload=0)
@costs("fbgemm::jagged_to_padded_dense_forward", "fbgemm::jagged_to_padded_dense_backward", payload=0)
@costs("fbgemm::dense_to_jagged_forward", "fbgemm::jagged_slice", "fbgemm::invert_permute", payload=0)
@costs("fbgemm::keyed_jagged_index_select_dim1_forward", "fbgemm::recat_embedding_grad_output", payload=0)
@costs("fbgemm::pack_segments", "fbgemm::pack_segments_v2", "fbgemm::lru_cache_find_uncached", payload=0)
@costs("fbgemm::jagged_index_select", "fbgemm::keyed_jagged_index_select_dim1", "fbgemm::lxu_cache_lookup", payload=0)
@costs("fbgemm::recat_embedding_grad_output_mixed_D_batch", payload=0)
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


@costs("torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs_gpu> >")
@costs("torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction>")
def gradient_of_permutation(call: Arguments) -> Cost:
    """(gradients[samples, width])."""
    gradient = call.tensor(0)
    return moves("gather", 0, [gradient], [gradient], gradient.dtype, access="indexed")


@costs(
    "fbgemm::asynchronous_complete_cumsum",
    "fbgemm::asynchronous_inclusive_cumsum",
    "fbgemm::asynchronous_exclusive_cumsum",
)
def cumulative_sum(call: Arguments) -> Cost:
    """(lengths)."""
    x = call.tensor(0)
    return moves("reduction", x.numel, [x], [x], x.dtype, access="scan", row=x.shape[-1] if x.shape else 1)


@costs("fbgemm::bounds_check_indices", "fbgemm::bounds_check_indices_v2")
def bounds_check(call: Arguments) -> Cost:
    """(rows_per_table, indices, offsets, ...): reads them; writes only entries out of bounds."""
    return moves("gather", 0, call.every(0, 3), [], call.tensor(1).dtype)


@costs("fbgemm::jagged_dense_elementwise_add", "fbgemm::jagged_dense_elementwise_mul")
@costs("fbgemm::jagged_dense_elementwise_add_jagged_output")
@costs("fbgemm::jagged_dense_dense_elementwise_add_jagged_output")
def jagged_with_dense(call: Arguments) -> Cost:
    """(values, offsets, dense): an element of the result for each value; padding is not counted."""
    values = call.tensor(0)
    return moves("pointwise", values.numel, [values, *call.every(1)], [values], values.dtype, access="indexed")


@costs("aten::_embedding_bag_dense_backward", "aten::_embedding_bag_backward")
def embedding_bag_backward(call: Arguments) -> Cost:
    """(grad[bags, dim], indices, offsets, offset2bag, ...): adds a bag's gradient to each of its rows."""
    grad, indices = call.tensor(0), call.tensor(1)
    rows = grad.like((indices.numel, grad.shape[-1]))
    return moves(
        "embedding", rows.numel, [grad, indices, rows], [rows], grad.dtype, run=grad.shape[-1], work=Lookup(True)
    )
