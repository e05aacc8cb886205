"""Sparse features of recommendation models: FBGEMM's ops over jagged tensors, and its conversions for communication.

Schemas: pytorch/FBGEMM, fbgemm_gpu/src (sparse_ops, jagged_tensor_ops, permute_pooled_embedding_ops,
permute_multi_embedding_ops, quantize_ops, merge_pooled_embedding_ops).
"""

from math import prod

from tracekit.analyzers.cost.ops.arguments import Arguments, costs, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.gemm import fit, product
from tracekit.analyzers.cost.ops.tensors import DTYPES, FLOAT32, Tensor
from tracekit.analyzers.cost.ops.work import Product, Softmax

_BYTE = DTYPES["uint8"]
_MATRIX, _SCALES = 2, 8
"""_SCALES: bytes of the scale and the offset of a quantized row."""


@costs("fbgemm::permute_multi_embedding", "fbgemm::permute_multi_embedding_function", "fbgemm::regroup_keyed_tensor")
@costs("fbgemm::kt_regroup_permutes", "fbgemm::merge_pooled_embeddings", "fbgemm::all_to_one_device")
@costs("fbgemm::tbe_input_combine", "fbgemm::tbe_input_combine_with_length", "fbgemm::padding_fused_tbe_input_combine")
@costs("fbgemm::sum_reduce_to_one", "fbgemm::cat_reorder_batched_ad_indices")
def rearrange_list(call: Arguments) -> Cost:
    """Reads and writes a list of tensors; those of the other inputs are small."""
    at = next((index for index in range(len(call)) if call.is_list(index)), 0)
    moved = call.tensors(at)
    fit(len(moved) > 0, call.name)
    return moves("gather", 0, moved, moved, moved[0].dtype, access="indexed")


@costs("fbgemm::jagged_dense_bmm", "fbgemm::sll_jagged_dense_bmm", dense=2)
@costs("fbgemm::jagged_jagged_bmm", dense=1)
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


@costs("fbgemm::permute102_baddbmm_permute102")
def batched_linear(call: Arguments) -> Cost:
    """(bias[batch, n], inputs[m, batch, k], weights[batch, k, n])."""
    a, b = call.tensor(1), call.tensor(2)
    m, groups, inner = a.shape
    fit(b.shape[:2] == (groups, inner), call.name)
    work = Product(groups, m, b.shape[2], inner, bias=True, weight="b")
    return product(a, b, work, of_weights=[call.optional(0)])


@costs("fbgemm::jagged_softmax")
def jagged_softmax(call: Arguments) -> Cost:
    """(values, offsets, ...)."""
    x = call.tensor(0)
    return moves("softmax", 5 * x.numel, [x], [x], x.dtype, row=x.shape[-1], work=Softmax())


@costs("fbgemm::index_select_dim0")
def select_rows(call: Arguments) -> Cost:
    """(input, indices, ...)."""
    x, indices = call.tensor(0), call.tensor(1)
    rows = x.like((indices.numel, *x.shape[1:]))
    return moves("gather", 0, [rows, indices], [rows], x.dtype, access="indexed", run=prod(x.shape[1:]))


@costs("fbgemm::group_index_select_dim0")
def select_rows_of_each(call: Arguments) -> Cost:
    """(inputs, indices): two lists."""
    inputs, indices = call.tensors(0), call.tensors(1)
    rows = [x.like((i.numel, *x.shape[1:])) for x, i in zip(inputs, indices, strict=True)]
    return moves("gather", 0, rows, rows, inputs[0].dtype, access="indexed")


@costs("fbgemm::segment_sum_csr")
def segment_sum(call: Arguments) -> Cost:
    """(batch size, segments, values)."""
    segments, values = call.tensor(1), call.tensor(2)
    sums = values.like((max(0, segments.numel - 1),))
    return moves("reduction", values.numel, [segments, values], [sums], values.dtype, access="rows")


@costs("fbgemm::offsets_range")
def offsets_range(call: Arguments) -> Cost:
    """(offsets, length)."""
    offsets = call.tensor(0)
    return moves("pointwise", 0, [offsets], [offsets.like((call.integer(1),))], offsets.dtype)


@costs("fbgemm::get_unique_indices", "fbgemm::get_unique_indices_v2")
def unique_indices(call: Arguments) -> Cost:
    """(indices, ...)."""
    x = call.tensor(0)
    return moves("gather", 0, [x], [x], x.dtype, access="sort")


@costs("fbgemm::FloatToBfloat16Quantized", "fbgemm::FloatToHFP8Quantized", "fbgemm::Bfloat16QuantizedToFloat")
@costs("fbgemm::HFP8QuantizedToFloat")
@costs("fbgemm::FloatToFused8BitRowwiseQuantized", "fbgemm::HalfToFused8BitRowwiseQuantized")
@costs("fbgemm::Fused8BitRowwiseQuantizedToFloat", "fbgemm::Fused8BitRowwiseQuantizedToHalf")
@costs("fbgemm::FloatToFP8RowwiseQuantized", "fbgemm::FP8RowwiseQuantizedToFloat")
@costs("fbgemm::PaddedFP8RowwiseQuantizedToFloat", "fbgemm::FloatToPaddedFP8RowwiseQuantized")
@costs("fbgemm::FloatOrHalfToFusedNBitRowwiseQuantizedSBHalf", "fbgemm::FusedNBitRowwiseQuantizedSBHalfToFloat")
def convert(call: Arguments) -> Cost:
    """(input, ...): the narrow type has one byte per element, two for bfloat16, or the number of bits in the
    arguments."""
    x = call.tensor(0)
    name = call.name.rpartition("::")[2]
    narrow = x.numel * (2 if "Bfloat16" in name else 1)
    if "NBit" in name:
        narrow = x.numel * call.integer(1, 4) // 8
    rows = x.numel // max(1, x.shape[-1]) if x.shape else 0
    written = 4 * x.numel if name.endswith("ToFloat") else 2 * x.numel if name.endswith("ToHalf") else narrow
    if name.startswith("FusedNBit"):
        written = 4 * x.numel * 8 // max(1, call.integer(1, 4))
    scales = _SCALES * rows * ("Rowwise" in name and written == narrow)
    return moves("pointwise", 2 * x.numel, [x], [Tensor((written + scales,), _BYTE)], FLOAT32)
