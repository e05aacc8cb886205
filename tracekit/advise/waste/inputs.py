"""Detectors of work that the form of its inputs makes large: padding, masks, indices, and lengths."""

import math
import re
from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from tracekit.advise.waste.again import is_attention
from tracekit.advise.waste.finding import STAYS, Finding, lessened, longest
from tracekit.advise.waste.repeats import size_of, spans_of, tensors_in
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import ELEMENT_BYTES, Attention, Cost, estimate_ns
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, pick, where, which

_KNOWN = outcomes(__file__)

_TRIED = 16
"""Launches of an op from which its library tries kernels for it."""
_TRIES = re.compile(r"conv|cudnn|miopen")
"""Ops of libraries that try kernels. Others, such as a sort, need all that they launch."""
_CHOSEN = 2
"""Launches of an op whose kernel is chosen by a table."""


def planned_again(base: Baseline) -> Finding | None:
    """Find ops whose library plans a kernel for a new shape in each step. Where it tries kernels, these and their
    launches are a part of it, and all that is longer than a launch is; at best, the latter is everywhere. Without
    tries, it still plans one."""
    planning = base.planning
    rows = planning > 0
    tried = rows & (base.ops.launches >= _TRIED) & which(base.ops.name, _TRIES.search)
    if not rows.any():
        return None

    def change(run: Baseline, outcome: Outcome) -> OpList:
        longer = np.where(rows if outcome == "best" else tried & (outcome != "worst"), run.other_host, 0.0)
        left = [pick(known, outcome) for known in (_KNOWN["left_of_tries"], _KNOWN["left_to_plan"])]
        planned = (1 - np.where(tried, *left)) * run.planning
        launches = np.where(tried & (outcome != "worst"), _CHOSEN, run.ops.launches)
        one = launches / np.maximum(run.ops.launches, 1)
        again = run.planning - planned
        host = (run.ops.host_ns - run.planning - longer) * one + again
        return run.ops.assign(host_ns=host, kernel_ns=run.ops.kernel_ns * one, launches=launches)

    return Finding(
        rows,
        change,
        int(rows.sum()),
        likely=("allocation", "setup"),
        host_ns=float(planning.sum()),
        way="kernels-tried" if tried.any() else "",
    )


_LONG = 64
"""Fewest positions of a sequence that may be padded, or that a mask hides."""

_SET = (128, 100)
"""A length that is a multiple of one of these is a maximum that somebody set: the longest item seldom has one."""


def padded_items(base: Baseline) -> Finding | None:
    """Find sequences of a batch that have masks of their own: items of other lengths than the longest, or than a
    maximum that is set."""
    ops = base.ops
    masked = _masked(base, lambda dims, work: len(dims) == 4 and dims[0] == work.batch > 1)
    if not masked.any():
        return None
    kernels = (ops.category == "kernel") & ~in_phase(ops, "optimizer")
    set_ = all(not all(cost.work.keys % each for each in _SET) for cost in ops.cost[masked])
    left = _KNOWN["below_a_maximum"] if set_ else _KNOWN["not_padding"]
    attends = kernels & where(ops, is_attention)

    def change(run: Baseline, outcome: Outcome) -> OpList:
        """Return the step with so many of the tokens, whose attention grows with the square of the length."""
        part = np.where(kernels, pick(left, outcome), 1.0)
        return run.ops.assign(kernel_ns=run.ops.kernel_ns * np.where(attends, part**2, part))

    planned = any(cost.work.backend == "cudnn" for cost in ops.cost[masked])
    return Finding(kernels, change, int(masked.sum()), way="planned" if planned else "")


def masked_attention(base: Baseline) -> Finding | None:
    """Find attention of a sequence to itself with one mask for all sequences and heads, and what makes it ready. It may
    be causal, unless it is the same for all queries."""
    if not (masked := _masked(base, lambda dims, _: math.prod(dims[:-2]) == 1)).any():
        return None
    sizes = {_size(cost) for cost in base.ops.cost[masked]}
    rows = where(base.ops, lambda cost: cost is not None and _size(cost) in sizes)
    of_keys = all(dims[-2] == 1 for dims in base.recorded.masks(base.ops)[masked])
    costs = {"expected": _unmasked, "best": _unmasked} if of_keys else {"expected": _causal, "best": _narrow}
    readied = (base.ops.call == "aten::scaled_dot_product_attention") & (base.ops.name == "aten::where")

    def change(run: Baseline, outcome: Outcome) -> OpList:
        """Return the step without masks, to which kernels may owe that they are slower than modelled."""
        if outcome not in costs:
            return run.ops
        ops, kernel = lessened(rows, STAYS, cost=costs[outcome])(run, outcome), run.ops.kernel_ns.copy()
        modelled = np.array([estimate_ns(cost, run.gpu) for cost in ops.cost[rows]])
        excess = np.maximum(ops.kernel_ns[rows] / modelled, 1.0)
        kernel[rows] = ops.kernel_ns[rows] / excess ** pick(_KNOWN["owed_to_the_mask"], outcome)
        return ops.assign(kernel_ns=kernel)[~readied]

    return Finding(rows | readied, change, int(masked.sum()))


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


def _unmasked(cost: Cost, *, causal: bool = False) -> Cost:
    """Return the cost without a mask, or with a causal flag, on the backend that PyTorch then prefers."""
    assert isinstance(cost.work, Attention)
    return replace(cost, flops=cost.flops // (1 + causal), work=replace(cost.work, causal=causal, backend=""))


def _causal(cost: Cost) -> Cost:
    return _unmasked(cost, causal=True)


def _narrow(cost: Cost) -> Cost:
    """Return the cost with a window of one block of keys, which the mask may be."""
    assert isinstance(cost.work, Attention)
    return replace(_causal(cost), flops=cost.flops * _LONG // cost.work.keys)


_ADDS_ROWS = _KNOWN["adds_rows"]
"""Time of adding rows by index without sorting, in times of the gathers in the forward pass."""


def sorted_gradients(base: Baseline) -> Finding | None:
    """Find gradients of `x[index]`, which sort the indices and add the rows of each in turn."""
    ops = base.ops
    rows = which(ops.name, lambda name: name.startswith("aten::_index_put_impl_")) & which(
        ops.call, lambda call: "IndexBackward" in call
    )
    if found := _interpolated(base, rows):
        return found
    gathers = float(ops.kernel_ns[(ops.name == "aten::index") & in_phase(ops, "forward")].sum())
    took = float(ops.kernel_ns[rows].sum())
    if not base.trains or not took or not gathers or gathers * _ADDS_ROWS.expected > took:
        return longest([_sorted_sums(base), _lookups_of_few_rows(base)], ops.kernel_ns)
    kept = _ADDS_ROWS.mapped(lambda times: min(1.0, times * gathers / took))
    return Finding(rows, lessened(rows, kept), int(rows.sum()))


_CORNERS = 4
"""Gathers of a bilinear interpolation that is written out. One kernel each way reads and writes as much as one."""
_FILLED = re.compile(r"^aten::(?!fill|zero|ones|full|new_)|Backward")
_WEIGHTED = re.compile(r"^aten::(?:sub|mul|add|clamp|arange)$|(?:Sub|Mul|Add)Backward")
_NEAR = 12
"""Ops between a gather of an interpolation, or its gradient, and those that weight it."""


def _interpolated(base: Baseline, puts: Rows) -> Finding | None:
    """Find interpolations that PyTorch writes out as gathers, because deterministic algorithms are on, which also fill
    each new tensor."""
    ops = base.ops
    gathers = ops.call == "aten::_unsafe_index"
    rows = gathers | which(ops.call, lambda call: "UnsafeIndexBackward" in call)
    if not (gathers.any() and (rows & puts).any()):
        return None
    also = (ops.name == "aten::fill_") & which(ops.call, _FILLED.search)
    near = np.convolve(rows, np.ones(2 * _NEAR + 1))[_NEAR:-_NEAR] > 0
    also |= near & which(ops.call, _WEIGHTED.search)
    reads = gathers & (ops.name == "aten::index")

    def change(run: Baseline, outcome: Outcome) -> OpList:
        kernel = np.where(reads, 2 * run.ops.kernel_ns / _CORNERS, run.ops.kernel_ns)
        return run.ops.assign(kernel_ns=kernel)[~((rows & ~reads) | (also & (outcome != "worst")))]

    return Finding(rows | also, change, int((rows & puts).sum()), way="deterministic-sums")


def _sorted_sums(base: Baseline) -> Finding | None:
    """Find `index_put_(accumulate=True)`, which sorts, where no gradient of `x[index]` calls it: the program does, or
    deterministic sums by index do. Without accumulating, it takes as long as its bytes."""
    ops = base.ops
    rows = which(ops.call, _SUMS_BY_INDEX.search) & (ops.category == "kernel")
    puts = rows & which(ops.name, lambda name: name.startswith("aten::_index_put_impl_"))
    given = [tensors_in(base, place, place + 1)[1:] for place in np.flatnonzero(puts).tolist()]
    bytes_ns = sum(size_of(*each) for tensors in given for each in tensors) / base.gpu.bandwidth * 1e9
    rows &= which(ops.call, set(ops.call[puts]).__contains__)
    bytes_ns = bytes_ns or _moving_ns(ops, rows & ~puts)
    took = float(ops.kernel_ns[rows].sum())
    if not bytes_ns or took < _CONTENDED * bytes_ns:
        return None
    kept = _KNOWN["spread_out"].mapped(lambda times: min(1.0, times * bytes_ns / took))
    way = "" if (ops.call[puts] == "aten::index_put_").all() else "deterministic-sums"
    return Finding(rows, lessened(rows, kept, host=kept), int(puts.sum()), way=way)


def _lookups_of_few_rows(base: Baseline) -> Finding | None:
    """Find gradients of embeddings that look up each row of a small table very often: they sort the indices and add the
    rows of each one in turn, which takes many times as long as their bytes. Lookups of narrow rows may, too."""
    ops, rows, bytes_ns = base.ops, np.zeros(len(base.ops), dtype=bool), 0.0
    sums = which(ops.name, lambda name: name == "aten::embedding_dense_backward")
    numbers = [math.prod(next((shape for _, shape in tensors_in(base, at, at + 1)), ())) for at in range(len(ops))]
    for place in np.flatnonzero((ops.call == "aten::embedding") & ops.costed).tolist():
        cost, written = ops.cost[place], round(ops.cost[place].write_bytes / ELEMENT_BYTES[ops.cost[place].precision])
        of_it, one_ns = sums & (np.array(numbers) == written), 2 * cost.write_bytes / base.gpu.bandwidth * 1e9
        if written >= _VALUES * numbers[place] and ops.kernel_ns[of_it].sum() >= _CONTENDED * one_ns:
            of_it[place] = ops.kernel_ns[place] >= _CONTENDED * one_ns
            rows, bytes_ns = rows | of_it, bytes_ns + one_ns * (1 + of_it[place] / 2)
    if not rows.any():
        return None
    took = float(ops.kernel_ns[rows].sum())
    kept = _KNOWN["spread_out"].mapped(lambda times: min(1.0, times * bytes_ns / took))
    return Finding(rows, lessened(rows, kept), int(rows.sum()), way="few_rows")


_MOVES_ROWS = re.compile(r"^aten::(?:mul|copy_|clone|expand)$")


def _moving_ns(ops: OpList, beside: Rows) -> float:
    """Return the time of the ops beside sorts that scale or copy the rows to add: they read and write each once."""
    moves = beside & which(ops.name, _MOVES_ROWS.match)
    return float(sum(ops.kernel_ns[start:end][moves[start:end]].max(initial=0.0) for start, end in spans_of(beside)))


_SUMS_BY_INDEX = re.compile(
    r"aten::(?:index_put|index_add|scatter_add|scatter_reduce)_?$|(?:IndexSelect|Gather)Backward"
)
_CONTENDED = 10
"""Times that its bytes take from which a sum by index waits for itself."""
_VALUES, _LESS_CONTENDED = 64, 2.5
"""Values for each address, and times that its bytes take, from which it does, too."""
_SUMS = re.compile(r"^aten::(?:scatter_add_?|index_add_?|bincount|histc)$")


def contended_sums(base: Baseline) -> Finding | None:
    """Find sums by index that take many times as long as their bytes, or a few times with many values an address."""
    ops = base.ops
    bytes_ns = np.array([cost.bytes if cost is not None else 0 for cost in ops.cost]) / base.gpu.bandwidth * 1e9
    rows = which(ops.name, _SUMS.match) & (bytes_ns > 0)
    few = rows & np.array([_of_few(base, place) for place in range(len(ops))])
    rows &= ops.kernel_ns > np.where(few, _LESS_CONTENDED, _CONTENDED) * bytes_ns
    if not rows.any():
        return None

    def change(run: Baseline, outcome: Outcome) -> OpList:
        times = np.where(few, pick(_KNOWN["as_product"], outcome), pick(_KNOWN["spread_out"], outcome))
        return run.ops.assign(kernel_ns=np.where(rows, times * bytes_ns, run.ops.kernel_ns))

    return Finding(rows, change, int(rows.sum()))


def _of_few(base: Baseline, place: int) -> bool:
    """Return whether an op adds many values to each address: its largest input is that much larger than its first."""
    sizes = [math.prod(shape) for _, shape in tensors_in(base, place, place + 1)]
    return bool(sizes and max(sizes) >= _VALUES * max(sizes[0], 1))


def odd_transforms(base: Baseline) -> Finding | None:
    """Find FFTs of lengths with a large prime factor."""
    shares = base.recorded.bluestein_shares(base.ops)
    rows = shares > 0
    if not rows.any():
        return None

    def change(run: Baseline, outcome: Outcome) -> OpList:
        return run.ops.assign(kernel_ns=run.ops.kernel_ns * (1 - shares * (1 - pick(_KNOWN["by_factors"], outcome))))

    return Finding(rows, change, int(rows.sum()))
