"""The kind of PyTorch kernel that a memory-bound op runs, which is a section of constants.toml."""

from tracekit.analyzers.cost.ops.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.cost.ops.work import Lookup, Loss, Norm, Precision, Softmax
from tracekit.analyzers.cost.time.gemm import VECTOR_BYTES

_WARP_ROW = 1024
"""Longest softmax row that one warp keeps in registers. The forward pass takes twice that since PyTorch 2.6."""
_SHARED_BYTES = 48 << 10
"""Longest softmax row that a block keeps in shared memory, if it consists of whole vectors."""
_WORD_BYTES = 4
_FEW_LOOKUPS = 16
"""Lookups up to which one kernel processes the indices in sequence."""
_FEW_GRADIENTS = 3072
"""Rows of an embedding's gradient up to which the indices are not sorted first."""


def kind(cost: Cost) -> str:
    """Return the section [memory.*] of constants.toml for a cost."""
    named = {"softmax": _softmax, "norm": _norm, "embedding": _lookup, "gather": _lookup, "copy": _copy, "loss": _loss}
    if cost.family in named:
        return named[cost.family](cost)
    return cost.family if cost.access == "linear" else cost.access


def elements(cost: Cost) -> float:
    """Return the number of elements of the result, or of the input of a reduction."""
    reduced = cost.row and cost.family in ("reduction", "optimizer")
    moved = cost.read_bytes if reduced else _result_bytes(cost)
    return moved / ELEMENT_BYTES[cost.precision]


def _result_bytes(cost: Cost) -> int:
    """Return the bytes of the result; for a norm or softmax, without its statistics and in the type of its input."""
    return min(cost.read_bytes, cost.write_bytes) if cost.row else cost.write_bytes


def rows(cost: Cost) -> float:
    return elements(cost) / cost.row if cost.row else 0.0


def _softmax(cost: Cost) -> str:
    if isinstance(cost.work, Softmax) and cost.work.backward:
        return "softmax-backward" if cost.row <= _WARP_ROW else "softmax-backward-long"
    if cost.row <= 2 * _WARP_ROW:
        return "softmax" if cost.row <= _WARP_ROW else "softmax-wide"
    row_bytes = cost.row * ELEMENT_BYTES[cost.precision]
    return "softmax-shared" if row_bytes < _SHARED_BYTES and not row_bytes % VECTOR_BYTES else "softmax-long"


def _norm(cost: Cost) -> str:
    if cost.access != "linear":
        return "norm-columns"
    if isinstance(cost.work, Norm) and cost.work.channels:
        return _batch_norm(cost.work, cost.precision)
    return "norm" if not isinstance(cost.work, Norm) or cost.work.centered else "norm-rms"


def _batch_norm(work: Norm, precision: Precision) -> str:
    """Return the section of a batch norm. PyTorch's own kernels compute in bf16 and fp64, cuDNN's in other types."""
    last, own = "-last" if work.channels_last else "", "-own" if precision in ("bf16", "fp64") else ""
    return f"batch-norm{last}{own}" + ("-backward" if work.backward else "")


def _lookup(cost: Cost) -> str:
    looked_up = elements(cost) / cost.run if cost.run else 0
    if isinstance(cost.work, Lookup) and cost.work.adds:
        return "embedding-few" if 0 < looked_up <= _FEW_GRADIENTS else "embedding"
    if cost.access != "linear":
        return cost.access
    return "gather-few" if 0 < looked_up <= _FEW_LOOKUPS else "gather"


def _copy(cost: Cost) -> str:
    if cost.access != "linear":
        return "copy-cast" if cost.access == "cast" else cost.access
    if cost.read_bytes:
        return "copy"
    return "fill" if ELEMENT_BYTES[cost.precision] >= _WORD_BYTES else "fill-narrow"


def _loss(cost: Cost) -> str:
    return "loss-backward" if isinstance(cost.work, Loss) and cost.work.backward else "loss"
