"""Detectors of work that the form of its inputs makes large: padding, masks, indices, and lengths."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tracekit.advise.waste.finding import Finding, lessened
from tracekit.analyzers.core import Outcomes
from tracekit.analyzers.cost import Attention, Cost
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, pick, retimed, where, which

_LEFT_TO_PLAN = Outcomes(0.3, 0.0, 0.0)
"""Fraction of the planning that remains: assumed. Kernels of other libraries are chosen by a table, in no time."""


def planned_again(base: Baseline) -> Finding | None:
    """Find ops whose library plans a kernel for a new shape in each step."""
    planning = base.planning
    rows = planning > 0
    if not rows.any():
        return None

    def change(run: Baseline, outcome: Outcome) -> OpList:
        return run.ops.assign(host_ns=run.ops.host_ns - (1 - pick(_LEFT_TO_PLAN, outcome)) * run.planning)

    return Finding(rows, change, int(rows.sum()), host_ns=float(planning.sum()))


_LONG = 64
"""Fewest positions of a sequence that may be padded, or that a mask hides."""
_NOT_PADDING = Outcomes(1.0, 0.65, 0.3)
"""Fraction of the tokens that are no padding: assumed. Batches in order of arrival are a half to a fifth."""


def padded_items(base: Baseline) -> Finding | None:
    """Find sequences of a batch that have masks of their own: items of other lengths than the longest."""
    masked = _masked(base, lambda dims, work: len(dims) == 4 and dims[0] == work.batch > 1)
    if not masked.any():
        return None
    kernels = (base.ops.category == "kernel") & ~in_phase(base.ops, "optimizer")
    return Finding(kernels, lessened(kernels, _NOT_PADDING), int(masked.sum()))


def masked_attention(base: Baseline) -> Finding | None:
    """Find attention of a sequence to itself with one mask for all sequences and heads, which may be causal."""
    masked = _masked(base, lambda dims, _: math.prod(dims[:-2]) == 1)
    if not masked.any():
        return None
    sizes = {_size(cost) for cost in base.ops.cost[masked]}
    rows = where(base.ops, lambda cost: cost is not None and _size(cost) in sizes)

    def change(run: Baseline, outcome: Outcome) -> OpList:
        if outcome == "worst":
            return run.ops
        part = retimed(run.ops[rows], _causal, run.gpu, outcome)
        kernel = run.ops.kernel_ns.copy()
        kernel[rows] = np.minimum(part.kernel_ns, kernel[rows])
        return run.ops.assign(kernel_ns=kernel)

    return Finding(rows, change, int(masked.sum()))


def _masked(base: Baseline, fits: Callable[[list[int], Attention], bool]) -> Rows:
    """Select the attention of long sequences to themselves whose recorded mask fits."""
    pairs = zip(base.recorded.masks(base.ops).tolist(), base.ops.cost.tolist(), strict=True)
    return np.array([bool(dims) and _is_long(cost) and fits(dims, cost.work) for dims, cost in pairs], dtype=bool)


def _is_long(cost: Cost | None) -> bool:
    work = cost.work if cost is not None else None
    return isinstance(work, Attention) and work.queries == work.keys >= _LONG and not work.causal


def _size(cost: Cost) -> tuple[int, int, int] | None:
    work = cost.work
    return (work.batch, work.queries, work.keys) if isinstance(work, Attention) and not work.causal else None


def _causal(cost: Cost) -> Cost:
    """Return the cost with a causal flag, on the backend that PyTorch prefers without a mask."""
    assert isinstance(cost.work, Attention)
    return replace(cost, flops=cost.flops // 2, work=replace(cost.work, causal=True, backend=""))


_ADDS_ROWS = Outcomes(6.0, 3.0, 2.0)
"""Time of adding rows by index without sorting, in times of the gathers in the forward pass: each reads the same rows,
and an atomic addition reads and writes one."""


def sorted_gradients(base: Baseline) -> Finding | None:
    """Find gradients of `x[index]`, which sort the indices and add the rows of each in turn."""
    ops = base.ops
    rows = which(ops.name, lambda name: name.startswith("aten::_index_put_impl_")) & which(
        ops.call, lambda call: "IndexBackward" in call
    )
    gathers = float(ops.kernel_ns[(ops.name == "aten::index") & in_phase(ops, "forward")].sum())
    took = float(ops.kernel_ns[rows].sum())
    if not base.trains or not took or not gathers or gathers * _ADDS_ROWS.best > took:
        return None
    kept = Outcomes(*(min(1.0, times * gathers / took) for times in _outcomes(_ADDS_ROWS)))
    return Finding(rows, lessened(rows, kept), int(rows.sum()))


def _outcomes(values: Outcomes) -> tuple[float, float, float]:
    return values.worst, values.expected, values.best


_BY_FACTORS = Outcomes(0.5, 0.3, 0.15)
"""Time of an FFT of a length with small factors, relative to Bluestein's algorithm, which transforms twice at twice the
length or more, and multiplies three times."""


def odd_transforms(base: Baseline) -> Finding | None:
    """Find FFTs of lengths with a large prime factor."""
    shares = base.recorded.bluestein_shares(base.ops)
    rows = shares > 0
    if not rows.any():
        return None

    def change(run: Baseline, outcome: Outcome) -> OpList:
        return run.ops.assign(kernel_ns=run.ops.kernel_ns * (1 - shares * (1 - pick(_BY_FACTORS, outcome))))

    return Finding(rows, change, int(rows.sum()))
