"""Detector of tensors that are cast to another type and back, with what is computed in it between."""

import re
from functools import partial

import numpy as np

from tracekit.advise.waste.finding import Finding, lessened, longest, removed
from tracekit.advise.waste.rounds import products
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import Attention, Cost, Precision
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, narrowed, where, which

_NEAR = 8
"""Number of ops after a cast within which the way back is searched."""
_SENSITIVE = ("norm", "softmax", "reduction", "loss")
_SENSITIVE_OPS = re.compile(r"^aten::(?:pow|rsqrt|mean|sum|var|exp|log|softmax|_softmax|_log_softmax)")


def casts_back(base: Baseline) -> Finding | None:
    """Find casts there and back, or attention in 32 bits between them, whichever takes longer."""
    return longest([_casts_there_and_back(base), _wide_attention(base)], base.ops.kernel_ns)


def _casts_there_and_back(base: Baseline) -> Finding | None:
    """Find pairs of casts, of which the second undoes the first, without an op between that needs the type that it runs
    in: sums need the wider one, and products are faster in the narrower one, as autocast runs them."""
    ops, rows, product = base.ops, np.zeros(len(base.ops), dtype=bool), products(base.ops)
    casts = np.flatnonzero(where(ops, is_cast))
    sensitive = where(ops, lambda cost: cost is not None and cost.family in _SENSITIVE)
    sensitive |= which(ops.name, _SENSITIVE_OPS.match)
    for one, other in zip(casts[:-1].tolist(), casts[1:].tolist(), strict=True):
        there, back = ops.cost[one], ops.cost[other]
        undone = (there.read_bytes, there.write_bytes) == (back.write_bytes, back.read_bytes)
        near = 1 < other - one <= _NEAR and ops.phase[one] == ops.phase[other]
        needed = product if there.write_bytes < there.read_bytes else sensitive
        if undone and near and not rows[one] and not needed[one:other].any():
            rows[[one, other]] = True
    return Finding(rows, removed(rows), int(rows.sum()) // 2) if rows.any() else None


def is_cast(cost: Cost | None) -> bool:
    """Return whether the op writes what it reads in a type of another size."""
    if cost is None or cost.family != "copy":
        return False
    return bool(cost.write_bytes) and cost.read_bytes in (2 * cost.write_bytes, cost.write_bytes // 2)


_WIDE = ("fp32", "tf32")
_TO_TYPE = ("aten::to", "aten::type_as", "aten::_to_copy", "autograd::engine::evaluate_function: ToCopyBackward0")
"""Calls that cast."""
_SOON = 2
"""Most ops between attention and the cast of its result."""
_IN_16_BITS = outcomes(__file__)["attention"]


def _wide_attention(base: Baseline) -> Finding | None:
    """Find fused attention in 32 bits whose result is cast to 16 bits at once: wider numbers, as of rotary tables, have
    promoted what it reads. In 16 bits, it runs on tensor cores, and none of the casts beside it remains."""
    ops = base.ops
    wide = where(ops, _attends_in_32_bits) | (~ops.costed & base.recorded.attends_in_32_bits(ops))
    casts = where(ops, is_cast) | (~ops.costed & (ops.name == "aten::copy_") & which(ops.call, _TO_TYPE.__contains__))
    forward = np.flatnonzero(wide & ~in_phase(ops, "backward")).tolist()
    if not forward or not all(_casts_result(base, casts, place) for place in forward):
        return None
    beside = casts & _next_to(wide)
    return Finding(wide | beside, partial(_in_16_bits, wide, beside), int(wide.sum()), way="wide-attention")


def _attends_in_32_bits(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.work, Attention) and cost.precision in _WIDE


def _casts_result(base: Baseline, casts: Rows, place: int) -> bool:
    """Return whether one of the next ops casts, to a narrower type if that is known."""
    soon = range(place + 1, min(place + 1 + _SOON, len(casts)))
    costs = [base.ops.cost[at] for at in soon if casts[at]]
    return any(cost is None or cost.read_bytes > cost.write_bytes for cost in costs)


def _next_to(rows: Rows) -> Rows:
    """Select the ops before and after these, three on each side, as of queries, keys and values."""
    near = rows.copy()
    for _ in range(3):
        near = near | np.append(near[1:], False) | np.append(False, near[:-1])
    return near


def _in_16_bits(wide: Rows, beside: Rows, base: Baseline, outcome: Outcome) -> OpList:
    to: Precision = "bf16" if base.gpu.supports("bf16") else "fp16"
    ops = lessened(wide, _IN_16_BITS, cost=partial(narrowed, precision=to))(base, outcome)
    return ops[~beside]
