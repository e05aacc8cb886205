"""Recognizes decoding in a step without a marked phase: one query attends to many keys."""

from tracekit.analyzers.costs.work import Append, Attention, Product, Work
from tracekit.analyzers.prediction.op_columns import OpList


def with_decoding(ops: OpList) -> OpList:
    """Return the op list (OP_LIST) with the phase "decode" if no phase is marked and all attention has one query."""
    if (ops.phase != "").any() or not _decodes([cost.work for cost in ops.cost if cost is not None]):
        return ops
    return ops.assign(phase="decode")


def _decodes(works: list[Work | None]) -> bool:
    """Return whether the works are unfused decode attention: a GEMM of one row per head, after a token is appended
    to the keys."""
    fused = [work for work in works if isinstance(work, Attention)]
    if fused:
        return all(work.queries == 1 < work.keys for work in fused)
    return any(isinstance(work, Append) and work.added == 1 for work in works) and any(map(_of_one_query, works))


def _of_one_query(work: Work | None) -> bool:
    return isinstance(work, Product) and not work.weight and work.m == 1 < work.groups
