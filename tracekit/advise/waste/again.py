"""Detectors of work that was done before: in an earlier pass, in the forward pass, for another layer or item."""

import math
import re
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tracekit.advise.waste.finding import STAYS, Finding, lessened, removed
from tracekit.advise.waste.unasked import is_cast
from tracekit.analyzers.core import Outcomes
from tracekit.analyzers.cost import Cost, Product, batched
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, changed, in_phase, pick, retimed, where, which

Ints = npt.NDArray[np.intp]

_TO_DEVICE = r"HtoD|HostToDevice|[HM]2D"
_PRODUCT = re.compile(r"mm$|^aten::(?:linear|convolution|cudnn_convolution|conv\w*|embedding|_convolution)$")


def passes_without_cache(base: Baseline) -> Finding | None:
    """Find passes that grow by one token each."""
    if base.growth is None or base.trains:
        return None
    rows, tokens = base.ops.category == "kernel", base.growth.tokens
    left = Outcomes(0.7, 0.3, 1 / tokens)
    change = lessened(rows, left, cost=partial(batched, factor=1 / tokens))
    return Finding(rows, change, base.growth.passes, tokens=tokens)


_MOST_MEMORY = 0.9
"""Fraction of the GPU's memory that the activations may fill."""
_UNKNOWN_MEMORY = "The trace does not show how much memory is free: record it with profile_memory=True."


def forward_passes_again(base: Baseline) -> Finding | None:
    """Find ops of the forward pass in the backward pass, if the memory holds what they compute."""
    rows = base.recorded.run_again(base.ops)
    if not rows.any() or not base.trains:
        return None
    memory = base.memory or base.least_memory
    added = sum(cost.write_bytes for cost in base.ops.cost[rows] if cost is not None)
    if memory is not None and memory.peak + added > _MOST_MEMORY * base.gpu.memory_bytes:
        return None
    notes = () if memory is not None else (_UNKNOWN_MEMORY,)
    return Finding(rows, removed(rows), int(rows.sum()), notes=notes)


_BEGINS = re.compile(r"^aten::(?:arange|linspace|eye|ones|full|tril_indices|triu_indices)(?:_|$)")
_FOLLOWS = re.compile(
    r"^aten::(?:tril|triu|sin|cos|exp|pow|reciprocal|outer|cumsum|eq|ne|lt|le|gt|ge|logical_\w+|bitwise_\w+)_?$"
)
_MAY_FOLLOW = re.compile(r"^aten::(?:mul|div|sub|rsub|add|neg|masked_fill|fill|copy|to|_to_copy|cat|stack|where)_?$")


def remade_constants(base: Baseline) -> Finding | None:
    """Find chains of ops that follow from constants alone, outside of decoding, whose masks grow."""
    if base.growth is not None:
        return None
    ops, rows, chains = base.ops, np.zeros(len(base.ops), dtype=bool), 0
    for start in np.flatnonzero(which(ops.call, lambda call: bool(_BEGINS.match(call)))).tolist():
        end = _chain_end(ops, start)
        if rows[start] or end == start:
            continue
        rows[start : end + 1], chains = True, chains + 1
    rows &= ~in_phase(ops, "decode")
    return Finding(rows, removed(rows), chains) if rows.any() else None


def _chain_end(ops: OpList, start: int) -> int:
    """Return the last op after `start` that follows from constants for sure, with only such ops between."""
    end = start
    for place in range(start + 1, len(ops)):
        call = ops.call[place]
        if _FOLLOWS.match(call):
            end = place
        elif not (_MAY_FOLLOW.match(call) or _BEGINS.match(call)):
            break
    return end


_COPIES = 3
"""Fewest copies of one size in a step that may be one."""
_ELEMENTWISE = re.compile(r"^aten::(?:add|sub|mul|div|masked_fill|where|logical_\w+|bitwise_\w+)_?$")


def copies_of_one_size(base: Baseline) -> Finding | None:
    """Find copies of one size to the device, each for an elementwise op; one of them is needed."""
    coming = np.flatnonzero(base.recorded.copies_like(base.ops, _TO_DEVICE))
    follows = np.array([_used_by(base.ops, place) for place in coming.tolist()], dtype=object)
    coming = coming[[bool(_ELEMENTWISE.match(name)) for name in follows]] if len(coming) else coming
    sizes = base.recorded.copied_bytes(base.ops)[coming]
    rows = np.zeros(len(base.ops), dtype=bool)
    for size in np.unique(sizes[sizes > 0]):
        alike = coming[sizes == size]
        if len(alike) >= _COPIES:
            rows[alike[1:]] = True
    return Finding(rows, removed(rows), int(rows.sum()) + 1) if rows.any() else None


def _used_by(ops: OpList, place: int) -> str:
    """Return the op after a copy, or after the cast of what it copied."""
    after = [name for name in ops.call[place + 1 : place + 3] if name not in ("aten::to", "aten::_to_copy")]
    return str(after[0]) if after else ""


def casts_of_weights(base: Baseline) -> Finding | None:
    """Find casts of weights right before the product that reads them."""
    if base.trains:
        return None
    ops = base.ops
    casts = where(ops, lambda cost: is_cast(cost) and cost is not None and cost.read_bytes > cost.write_bytes)
    rows = np.zeros(len(ops), dtype=bool)
    for place in np.flatnonzero(casts).tolist():
        later = [cost for cost in ops.cost[place + 1 : place + 4] if cost is not None]
        rows[place] = any(cost.weight_bytes == ops.cost[place].write_bytes for cost in later)
    return Finding(rows, removed(rows), int(rows.sum())) if rows.any() else None


_SOON = 6
"""Ops within which a product reads what was gathered for it."""


def weights_for_each_item(base: Baseline) -> Finding | None:
    """Find matrices that are gathered for each item, and the products right after that read each copy once."""
    sources, ops = base.recorded.sources(base.ops), base.ops
    copies, products, matrices = np.zeros(len(ops), dtype=bool), np.zeros(len(ops), dtype=bool), 1
    for place in [at for at, source in enumerate(sources) if source is not None]:
        number, elements = sources[place]
        for later in range(place + 1, min(place + _SOON, len(ops))):
            work = getattr(ops.cost[later], "work", None)
            if isinstance(work, Product) and work.groups >= 2 * number and work.n * work.k == elements:
                copies[place], products[later], matrices = True, True, max(matrices, number)
    if not copies.any():
        return None
    grouped = lessened(products, STAYS, cost=partial(_grouped, matrices=matrices))
    return Finding(copies, lambda base, outcome: grouped(base, outcome)[~copies], int(copies.sum()))


def _grouped(cost: Cost, matrices: int) -> Cost:
    """Return the cost if the items of each matrix are rows of one product."""
    work = cost.work
    if not isinstance(work, Product) or work.groups <= matrices:
        return cost
    one, all_items = work.n * work.k, work.groups * work.m * work.k
    read = round(cost.read_bytes * (all_items + matrices * one) / (all_items + work.groups * one))
    rows = math.ceil(work.groups * work.m / matrices)
    return replace(cost, read_bytes=read, work=replace(work, groups=matrices, m=rows, weight="b"))


_ITEMS = 4
"""Fewest calls of a step that may be one."""
_ALIKE = 0.8
"""Fraction of the calls that launch the same ops of the same sizes."""
_APPENDS = re.compile(r"^aten::(?:cat|index_copy_?)$")
_GROWS = Outcomes(0.5, 0.0, 0.0)
"""Exponent of the growth of kernels of unknown cost with the number of items: a kernel of one item is a launch."""


def calls_for_items(base: Baseline) -> Finding | None:
    """Find equal sequences of ops for separate inputs."""
    ops = base.ops
    for begins in (_copied_inputs(base), _answers_of_one_module(base)):
        if len(begins) < _ITEMS or base.trains:
            continue
        calls = [np.arange(*ends) for ends in pairwise([*begins, len(ops)])]
        usual = _signature(ops, calls[len(calls) // 2])
        alike = [call for call in calls if _signature(ops, call[: len(usual)]) == usual]
        if len(alike) < max(_ITEMS, _ALIKE * len(calls)) or not _is_a_model(ops, alike[0][: len(usual)]):
            continue
        return _together(ops, [call[: len(usual)] for call in alike])
    return None


def _copied_inputs(base: Baseline) -> list[int]:
    """Return the places of copies to the device of less than a tenth of a millisecond that no elementwise op reads."""
    coming = base.recorded.copies_like(base.ops, _TO_DEVICE) & (base.ops.kernel_ns < 100_000)
    places = np.flatnonzero(coming)
    first = places[np.diff(places, prepend=-2) > 1]
    return [place for place in first.tolist() if not _ELEMENTWISE.match(_used_by(base.ops, place))]


def _answers_of_one_module(base: Baseline) -> list[int]:
    """Return the places after reads of an answer, if products of the same layers follow each of them."""
    ops, product = base.ops, _products(base.ops)
    reads = np.flatnonzero(base.recorded.copies_like(ops, r"DtoH|-> (?:Pageable|Pinned)"))
    begins = [0, *(reads[:-1] + 1).tolist()] if len(reads) else []
    spans = list(pairwise([*begins, len(ops)]))
    layers = {tuple(ops.layer[start:end][product[start:end]]) for start, end in spans}
    return begins if len(layers) == 1 and all(all(names) and names for names in layers) else []


def _signature(ops: OpList, call: Ints) -> list[tuple[str, int]]:
    return [(name, id(cost)) for name, cost in zip(ops.name[call], ops.cost[call], strict=True)]


def _products(ops: OpList) -> Rows:
    named = which(ops.name, lambda name: bool(_PRODUCT.search(name)))
    return named | where(ops, lambda cost: cost is not None and isinstance(cost.work, Product))


def _is_a_model(ops: OpList, call: Ints) -> bool:
    """Return whether these ops compute an answer from an input, and append to no cache."""
    appends = which(ops.name[call], lambda name: bool(_APPENDS.match(name))).any()
    return bool(_products(ops)[call].any()) and not (appends and len(call) > 1)


def _together(ops: OpList, calls: list[Ints]) -> Finding:
    """Return the finding that all calls become the first one, for as many items."""
    others, first = np.zeros(len(ops), dtype=bool), np.zeros(len(ops), dtype=bool)
    others[np.concatenate(calls[1:])], first[calls[0]] = True, True
    items = len(calls)
    known, unknown = first & ops.costed, first & ~ops.costed

    def change(base: Baseline, outcome: Outcome) -> OpList:
        larger = _enlarged(base, known, items, outcome)
        growth = items ** pick(_GROWS, outcome)
        return larger.assign(kernel_ns=changed(larger.kernel_ns, unknown, larger.kernel_ns[unknown] * growth))[~others]

    return Finding(first | others, change, items)


def _enlarged(base: Baseline, rows: Rows, items: int, outcome: Outcome) -> OpList:
    """Return the op list in which these ops have the cost of all items, and their modelled time."""
    if not rows.any():
        return base.ops
    part = retimed(base.ops[rows], partial(batched, factor=items), base.gpu, outcome)
    return base.ops.assign(
        kernel_ns=changed(base.ops.kernel_ns, rows, part.kernel_ns), cost=changed(base.ops.cost, rows, part.cost)
    )
