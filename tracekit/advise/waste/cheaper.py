"""Detectors of filters of many taps, of sorts for a few numbers or for places, and of sums over windows and long rows,
for which there are cheaper algorithms."""

import math
import re

import numpy as np

from tracekit.advise.waste.finding import Change, Finding, lessened
from tracekit.advise.waste.repeats import layouts, spans_of, tensors_in
from tracekit.analyzers.core import Outcomes, outcomes
from tracekit.analyzers.cost import ELEMENT_BYTES, Cost, Product, estimate_ns
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, pick, plain_launch_ns, which

_KNOWN = outcomes(__file__)
_FILTERS = re.compile(r"conv(?!.*transpose)")
_TAPS = 64
"""Fewest taps of a filter for which its transform, or separable passes, are cheaper."""
_COLUMNS = 8
"""Filters of a channel from which a convolution is a product for tensor cores, which compute 8 columns at least."""


def long_filters(base: Baseline) -> Finding | None:
    """Find filters of many taps, each of one channel, whose kernels compute each tap. A pass for each dimension
    computes as many taps as its side; a filter along one dimension can be a product of Fourier transforms."""
    ops, named = base.ops, which(base.ops.name, _FILTERS.search)
    sides = {place: _sides(base, place) for place in np.flatnonzero(named).tolist()}
    long = {place: each for place, each in sides.items() if math.prod(each) >= _TAPS}

    def change(run: Baseline, outcome: Outcome) -> OpList:
        kernel = run.ops.kernel_ns.copy()
        for place, each in long.items():
            kernel[place] *= _kept(each, outcome)
        return run.ops.assign(kernel_ns=kernel)

    rows = np.zeros(len(ops), dtype=bool)
    rows[[place for place, each in long.items() if _kept(each, "expected") < 1]] = True
    return Finding(rows, change, int(rows.sum())) if rows.any() else None


def _kept(sides: tuple[int, ...], outcome: Outcome) -> float:
    """Return the fraction of the time of such filters that a cheaper algorithm takes. Each pass takes as long as some
    taps beside those of its side."""
    taps = math.prod(sides)
    if len(sides) > 1:
        a_pass = pick(_KNOWN["a_pass"], outcome)
        return min(1.0, (len(sides) * a_pass + sum(sides)) / (a_pass + taps))
    return min(1.0, pick(_KNOWN["transforms"], outcome) / taps)


def _sides(base: Baseline, place: int) -> tuple[int, ...]:
    """Return the sides, longer than 1, of filters that each read one channel, of which there are few for it."""
    shapes = [shape for _, shape in tensors_in(base, place, place + 1)]
    if "backward" in base.ops.name[place]:  # the gradient of the result comes first, with a channel for each filter
        result, *shapes = shapes or [()]
        if len(shapes) < 2 or result[1:2] != shapes[1][:1]:
            return ()
    if len(shapes) < 2 or min(map(len, shapes[:2])) < 3:
        return ()
    channels, (filters, read, *sides) = shapes[0][1], shapes[1]
    return tuple(side for side in sides if side > 1) if read == 1 and filters < _COLUMNS * channels else ()


def fourier_bases(base: Baseline) -> Finding | None:
    """Find convolutions of one channel whose filters are as many as the real and imaginary parts, or either, of the
    spectrum of their taps, and are not trained: a transform of each frame computes the same from all taps at once."""
    ops, trained = base.ops, [shapes[2:3] for shapes in _convolved(base, backward=True).values()]
    bases = {
        place: _frames(work, weights[-1])
        for place, (_, weights, *_) in _convolved(base, backward=False).items()
        if isinstance(work := ops.cost[place].work, Product) and _is_fourier_basis(weights) and [weights] not in trained
    }
    rows = np.isin(np.arange(len(ops)), list(bases))

    def change(run: Baseline, outcome: Outcome) -> OpList:
        kernel, costs = run.ops.kernel_ns.copy(), run.ops.cost.copy()
        for place, frames in bases.items():
            took = pick(_KNOWN["frames"], outcome) * estimate_ns(frames, run.gpu)
            kernel[place], costs[place] = min(kernel[place], took), frames
        host = np.where(rows, pick(_LAUNCHES, outcome), 1.0)
        return run.ops.assign(kernel_ns=kernel, cost=costs, host_ns=run.ops.host_ns * host)

    return Finding(rows, change, len(bases), way="fourier-basis") if bases else None


def _convolved(base: Baseline, *, backward: bool) -> dict[int, list[tuple[int, ...]]]:
    """Return the shapes that each convolution of known cost is given, or each gradient of one."""
    ops, places = base.ops, np.flatnonzero(which(base.ops.name, _FILTERS.search) & base.ops.costed)
    given = {at: [shape for _, shape in tensors_in(base, at, at + 1)] for at in places.tolist()}
    return {at: each for at, each in given.items() if ("backward" in ops.name[at]) == backward and len(each) > 1}


_FEWEST_TAPS = 128
"""Taps of a filter from which a transform of each frame is cheaper than a product with a basis."""


def _is_fourier_basis(weights: tuple[int, ...]) -> bool:
    """Return whether filters of one channel along one dimension are as many as frequencies of a real signal, from zero
    to half of the rate, or twice as many; the transform may be padded to the double. Learned filters are few and short,
    and no odd number."""
    filters, read, *sides = weights if len(weights) > 2 else (0, 0)
    taps = math.prod(sides)
    lengths = [2 * (filters - 1)] if filters % 2 else [filters - 2] if filters % 4 == 2 else []
    return read == 1 and max(sides, default=0) == taps >= _FEWEST_TAPS and any(taps <= n <= 2 * taps for n in lengths)


def _frames(work: Product, taps: int) -> Cost:
    """Return the cost of reading and writing all frames once, each of so many fp32 numbers."""
    size = round(ELEMENT_BYTES["fp32"] * work.m * taps)
    return Cost(0, size, size, "pointwise", "fp32")


_SORTS = ("aten::sort", "aten::argsort")
_MANY, _PART = 1 << 12, 8
"""Fewest numbers in a row, and rows for each one that is read, from which a whole sort is not needed."""
_READ = 500
"""Times as long as the op that reads its result a sort takes if that reads a part. A sort moves each number and its
index four times or more: reading all takes a hundredth of that."""


def sorted_for_few(base: Baseline) -> Finding | None:
    """Find sorts of long rows, of whose results all later ops read a small part. Without shapes, the program takes a
    part of the result for an op that is too short to read all."""
    ops, takes = base.ops, base.recorded.takes_part(base.ops)
    rows, short, times = np.zeros(len(ops), dtype=bool), np.zeros(len(ops), dtype=bool), 0
    for start, end in spans_of(which(ops.call, _SORTS.__contains__)):
        short[start:end] = 0 < _row(base, start, end) <= _IN_A_BLOCK
        if base.recorded.inputs_of(ops[start:end])[-1] is not None:
            few = _few_are_read(base, start, end)
        else:
            few = end < len(ops) and takes[end] and _READ * ops.kernel_ns[end] <= ops.kernel_ns[start:end].sum()
        rows[start:end] |= few
        times += int(few)
    return Finding(rows, _chosen(rows, rows & short), times) if times else None


_IN_A_BLOCK = 1 << 12
"""Most numbers of a row that one block of threads sorts, which reads and writes each number once."""
_SELECTS = 16
"""Launches of `topk` of long rows, for all of them at once: three for each of four digits, and to gather and sort."""


def _chosen(rows: Rows, short: Rows) -> Change:
    """Return the change by which `topk` takes the place of these sorts, of which some launch kernels for each row."""

    def change(run: Baseline, outcome: Outcome) -> OpList:
        known = [pick(each, outcome) for each in (_KNOWN["chosen_of_short"], _KNOWN["chosen"])]
        kept = np.where(rows, np.where(short, *known), 1.0)
        ops = run.ops.assign(kernel_ns=run.ops.kernel_ns * kept, host_ns=run.ops.host_ns * kept)
        each = rows & (run.ops.launches > _SELECTS)
        host = np.where(each, np.minimum(ops.host_ns, _SELECTS * plain_launch_ns(run)), ops.host_ns)
        return ops.assign(host_ns=host, launches=np.where(each, _SELECTS, ops.launches))

    return change


def _row(base: Baseline, start: int, end: int) -> int:
    """Return the numbers of a row that these ops sort; 0: its shape is unknown."""
    return next((shape[-1] for _, shape in tensors_in(base, start, end)), 0)


def _few_are_read(base: Baseline, start: int, end: int) -> bool:
    """Return whether all ops after these sorts read few numbers, by shapes; those that index whole rows do not."""
    shape = next((shape for _, shape in tensors_in(base, start, end)), ())
    later = [size for place in range(end, len(base.ops)) for size in _indices_in(base, place)]
    return bool(shape and shape[-1] >= _MANY and later and _PART * max(later) <= math.prod(shape))


def _indices_in(base: Baseline, place: int) -> list[int]:
    """Return how many numbers each tensor of indices holds that an op reads, of which a view repeats some by strides of
    0, as one that gathers whole rows does. A copy writes its first tensor."""
    given = tensors_in(base, place, place + 1)
    views = [view for view in layouts(base, place) if view[0]] if any(kind == "long int" for kind, _ in given) else []
    if len(views) != len(given):
        views = [(shape, shape) for _, shape in given]
    sizes = [math.prod(side for side, step in zip(*view, strict=True) if step) for view in views]
    read = slice(int(base.ops.name[place] == "aten::copy_"), None)
    return [size for (kind, _), size in zip(given[read], sizes[read], strict=True) if kind == "long int"]


_FINDS = re.compile(r"^aten::(?:argmax|nonzero)$")
"""Ops that read where a comparison is true."""
_COMPARED = 4
"""Most ops of a comparison, its casts and what reads where it is true."""


def sorted_for_places(base: Baseline) -> Finding | None:
    """Find sorts of which the program compares the order with a few numbers at once, to find the places of these: as
    many numbers are greater as stand before. By shapes, one operand is the whole order and the other one is small."""
    ops = base.ops
    rows, times = np.zeros(len(ops), dtype=bool), 0
    for start, end in spans_of(which(ops.call, _SORTS.__contains__)):
        after = ops.name[end : end + _COMPARED]
        found = np.flatnonzero(which(after, _FINDS.match))
        last = end + int(found[0] if len(found) else 0)
        if len(after) and after[0] == "aten::eq" and _is_of_whole_order(base, start, end, last):
            rows[start : last + 1], times = True, times + 1
    kept = _KNOWN["counted"]
    return Finding(rows, lessened(rows, kept, host=kept), times, way="sorted-for-places") if times else None


def _is_of_whole_order(base: Baseline, start: int, end: int, last: int) -> bool:
    """Return whether the op after these sorts compares as many numbers as they order with fewer, by its shapes, else
    whether it takes a notable part of their time, and an op then reads where it is true: a part is compared in none."""
    ops, given = base.ops, tensors_in(base, end, end + 1)
    if not given:
        return bool(last > end and _READ * ops.kernel_ns[end] > ops.kernel_ns[start:end].sum())
    sizes = sorted(math.prod(shape) for _, shape in given)
    ordered = max((math.prod(shape) for _, shape in tensors_in(base, start, end)), default=0)
    return len(sizes) == 2 and sizes[1] == ordered and _PART * sizes[0] <= ordered


_REDUCES = re.compile(r"^aten::(?:mean|sum|std|var|var_mean|amax|amin|max|min|median)$")
_READ_AGAIN = 4
"""Times as long as the ops before and after it a reduction of windows takes that reads each number many times."""


def reduced_in_windows(base: Baseline) -> Finding | None:
    """Find reductions of overlapping windows that take many times as long as the ops on the device that make what the
    windows are of, and read the results: both are about as large, and so are running sums."""
    ops, windows = base.ops, base.recorded.reads_windows(base.ops)
    rows, times, beside_ns = np.zeros(len(ops), dtype=bool), 0, 0.0
    computed = ops.category == "kernel"
    for start, end in spans_of(which(ops.name, _REDUCES.match)):
        beside = [float(ops.kernel_ns[at]) for at in (start - 1, end) if 0 <= at < len(ops) and computed[at]]
        if windows[start] and ops.kernel_ns[start:end].min() >= _READ_AGAIN * max(beside, default=math.inf):
            rows[start:end], times, beside_ns = True, times + 1, beside_ns + max(beside)
    if not times:
        return None
    took = float(ops.kernel_ns[rows].sum())
    kept = _KNOWN["running"].mapped(lambda passes: min(1.0, passes * beside_ns / took))
    return Finding(rows, lessened(rows, kept), times, way="reduced-in-windows")


_SCANS = re.compile(r"^aten::_?(?:log)?cum(?:sum|prod|max|min|logsumexp)(?:_helper)?$")
_FEW_BLOCKS = 4
"""Multiprocessors of the GPU for each block of a kernel from which most of them are idle."""
_LONG_NS = 100_000
"""Time of a scan from which the launches of another one, in two levels, do not matter."""
_LAUNCHES = Outcomes(6.0, 5.0, 4.0)
"""Ops in place of one: a scan in two levels, of blocks and of their sums; windows of frames and their transforms."""


def scans_of_few_rows(base: Baseline) -> Finding | None:
    """Find scans of few long rows, each of which one block of threads reads from end to end while most of the GPU is
    idle. A scan of parts of rows, and of their sums, has enough blocks."""
    ops, blocks = base.ops, base.recorded.grids(base.ops)
    rows = which(ops.name, _SCANS.match) & (ops.category == "kernel") & (ops.kernel_ns >= _LONG_NS * ops.launches)
    rows &= (blocks > 0) & (blocks * _FEW_BLOCKS <= base.gpu.sms)
    if not rows.any():
        return None
    part = float(blocks[rows].max()) / base.gpu.sms
    kept = _KNOWN["in_two_levels"].mapped(lambda times: min(1.0, times * part))
    return Finding(rows, lessened(rows, kept, host=_LAUNCHES), int(rows.sum()), way="scanned-in-few-blocks")
