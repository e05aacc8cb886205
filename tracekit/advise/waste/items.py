"""Detector of calls of one model for each item, where one call would do for all."""

import re
from collections import Counter
from itertools import pairwise, takewhile

import numpy as np

from tracekit.advise.waste.again import ELEMENTWISE, used_by
from tracekit.advise.waste.as_one import for_all, gradients_of, together
from tracekit.advise.waste.finding import Finding
from tracekit.advise.waste.repeats import size_of, spans_of, tensors_in
from tracekit.advise.waste.rounds import FEWEST, JOINS, calls_by_layers, is_cell, products, rounds, shifted
from tracekit.advise.waste.separate import given_before, signature
from tracekit.analyzers.attribute import TO_DEVICE, TO_HOST
from tracekit.analyzers.core import Ints
from tracekit.analyzers.cost import ConvolutionGradients, Cost
from tracekit.analyzers.predict import Baseline, OpList, in_phase, where, which

_ALIKE = 0.8
"""Fraction of the calls that launch the same ops of the same sizes."""
_NUMBERS = 8
"""Most numbers of an answer that are read one by one."""
_APPENDS = re.compile(r"^aten::(?:cat|index_copy_?)$")


def calls_for_items(base: Baseline) -> Finding | None:
    """Find equal sequences of ops for separate inputs."""
    ops = base.ops
    for begins in (_copied_inputs(base), _answers_of_one_module(base)):
        if len(begins) < FEWEST:
            continue
        calls = [np.arange(*ends) for ends in pairwise([*begins, len(ops)])]
        usual = signature(ops, calls[len(calls) // 2])
        alike = [call[: len(usual)] for call in calls if signature(ops, call[: len(usual)]) == usual]
        if len(alike) >= max(FEWEST, _ALIKE * len(calls)) and _answers(base, alike[0]):
            return together(ops, alike)
    kinds = (_shared_layers, _decisions, _joined, _prepared, given_before)
    return next((found for kind in kinds if (found := kind(base))), None)


def _copied_inputs(base: Baseline) -> list[int]:
    """Return the places of copies to the device of less than a tenth of a millisecond that no elementwise op reads."""
    coming = base.recorded.copies_like(base.ops, TO_DEVICE) & (base.ops.kernel_ns < 100_000)
    places = np.flatnonzero(coming)
    first = places[np.diff(places, prepend=-2) > 1]
    return [place for place in first.tolist() if not ELEMENTWISE.match(used_by(base.ops, place))]


def _answers_of_one_module(base: Baseline) -> list[int]:
    """Return the places after reads of an answer, if products of the same layers follow each of them."""
    ops, product = base.ops, products(base.ops)
    reads = np.flatnonzero(base.recorded.copies_like(ops, TO_HOST))
    begins = [0, *(reads[:-1] + 1).tolist()] if len(reads) else []
    spans = list(pairwise([*begins, len(ops)]))
    layers = {tuple(ops.layer[start:end][product[start:end]]) for start, end in spans}
    return begins if len(layers) == 1 and all(all(names) and names for names in layers) else []


def _answers(base: Baseline, call: Ints) -> bool:
    """Return whether these ops compute an answer from an input, train nothing, and append to no cache. What is joined
    to be read by the host is an answer. Many numbers that are read one by one are answers for many items."""
    ops = base.ops[call]
    appends = np.flatnonzero(which(ops.name, _APPENDS.match))
    read = np.append(base.recorded.copies_like(ops, TO_HOST), False)
    if read.sum() > _NUMBERS:
        return False
    trains = in_phase(ops, "backward") | in_phase(ops, "optimizer")
    return bool(products(ops).any() and not trains.any() and read[appends + 1].all())


_ADDS = ("aten::add_", "aten::add")
_OF_LAYER = re.compile(r"[Mm]mBackward")
_CHOICES = {"aten::argmax", "aten::multinomial", "aten::max"}
_OF_TOKENS = re.compile(r"embedding|attention|aten::(?:cat|index_copy_?|index_select|gather)$")
_BIASED = 3
"""Tensors of a product with a bias: the bias, the input and the weight."""
_SUMMED = re.compile(r"evaluate_function: (?:T|Transpose|Permute|CudnnRnn|Convolution)Backward")


def _shared_layers(base: Baseline) -> Finding | None:
    """Find the calls of one network for separate inputs in training: a sequence of ops that repeats, whose weights'
    gradients autograd adds up before an optimizer changes them, and whose first product needs no gradient of its
    input."""
    ops, one = base.ops, base.ops[: _first_update(base.ops)]
    added = which(one.name, _ADDS.__contains__) & which(one.call, _SUMMED.search)
    if not base.trains or added.sum() < _ALIKE * FEWEST:
        return None
    for stretches in (calls_by_layers(ops), rounds(ops)):
        items = max(map(len, stretches), default=0)
        if FEWEST <= items <= added.sum() / _ALIKE and _of_data(one, items):
            return _for_separate_inputs(ops, stretches, items)
    return None


def _for_separate_inputs(ops: OpList, stretches: list[list[Ints]], items: int) -> Finding:
    loops = [(_with_ends(ops, same), len(same[0])) for same in stretches if len(same) == items]
    items = max(round(len(loop) / period) for loop, period in loops)
    places = np.concatenate([loop for loop, _ in loops])
    rows = gradients_of(ops, places, items)
    rows[places] = True
    return Finding(rows, for_all(ops, rows, items), items)


def _with_ends(ops: OpList, calls: list[Ints]) -> Ints:
    """Return the places of these calls and of the parts of calls before and behind them. Copies more are skipped before
    them: under autocast, the first call casts the weights for all."""
    before, place, behind = list[int](), int(calls[0][0]) - 1, int(calls[-1][-1]) + 1
    for usual in calls[0][::-1].tolist():
        while place >= 0 and ops.name[place] == "aten::copy_" and not _same(ops, place, usual):
            place -= 1
        if place < 0 or not _same(ops, place, usual):
            break
        before, place = [place, *before], place - 1
    ends = range(behind, min(behind + len(calls[0]), len(ops)))
    after = list(takewhile(lambda place: _same(ops, place, calls[0][place - behind]), ends))
    return np.concatenate([np.array(before, dtype=int), *calls, np.array(after, dtype=int)])


def _same(ops: OpList, one: int, other: int) -> bool:
    return bool(ops.name[one] == ops.name[other] and ops.call[one] == ops.call[other])


def _decisions(base: Baseline) -> Finding | None:
    """Find calls of a network that each choose one answer. Tokens are chosen one after another: their calls look
    one up, attend, or append to a cache. Iterations of a solver end by a value that they compute."""
    for calls in rounds(base.ops):
        names = set(base.ops.name[calls[0]])
        decided = (base.ops.call[calls[0]] == "aten::is_nonzero").any()
        if names & _CHOICES and not decided and not any(_OF_TOKENS.search(name) for name in names):
            return together(base.ops, calls)
    return None


_CARRIES = re.compile(r"rnn|gru|lstm|embedding|argmax|multinomial|cumsum")


def _joined(base: Baseline) -> Finding | None:
    """Find calls of a network in inference that each take a part of a batch, and whose results are joined. Steps that
    need each other's results read what the step before wrote: as many numbers."""
    ops = base.ops
    for stretch in rounds(ops) if not base.trains else ():
        calls = _taking_parts(base, stretch)
        after = int(calls[-1][-1]) + 1 if calls else len(ops)
        joins = after < len(ops) and ops.call[after] in JOINS and ops.call[after - 1] not in JOINS
        one = joins and bool(products(ops[calls[0][:1]])[0]) and not feeds_itself(base, calls[0])
        if calls and (one or _fill_a_buffer(base, calls)) and _of_one_network(ops, calls):
            return together(ops, calls)
    return None


def _prepared(base: Baseline) -> Finding | None:
    """Find calls of one network in inference on items that the program takes and prepares one by one, as crops that it
    resizes, whose results are joined. The layers, whose names tell the calls, compute the same for each item."""
    ops = base.ops
    calls = [] if base.trains else _of_one_name(ops)
    alike = [call for call in calls if signature(ops, call) == signature(ops, calls[len(calls) // 2])]
    if len(alike) < max(FEWEST, _ALIKE * len(calls)) or not products(ops[alike[0][:1]])[0]:
        return None
    first, carries = ops[alike[0]], which(ops.name[alike[0]], _CARRIES.search).any()
    between = [range(one[-1] + 1, next_one[0] + 1) for one, next_one in pairwise(calls)]
    behind = range(calls[-1][-1] + 1, min(calls[-1][-1] + 1 + max(map(len, between)), len(ops)))
    joined = any(ops.call[place] in JOINS for place in behind)
    taken = [_takes_an_item(base, gap, ops.cost[alike[0][-1]]) for gap in between]
    fits = joined and np.mean(taken) >= _ALIKE and not (carries or is_cell(first))
    return together(ops, alike) if fits else None


def _of_one_name(ops: OpList) -> list[Ints]:
    """Return the stretches of ops of layers that begin with the layer with which most of them begin."""
    stretches = [np.arange(*span) for span in spans_of(np.asarray(ops.layer != ""))]
    begins = Counter(ops.layer[each[0]] for each in stretches)
    return [each for each in stretches if ops.layer[each[0]] == begins.most_common(1)[0][0]]


def _takes_an_item(base: Baseline, gap: range, result: Cost | None) -> bool:
    """Return whether the program takes a part of a tensor between two calls, after which neither it nor the call is
    given as many numbers as the result of the call before."""
    ops = base.ops[gap.start : gap.stop]
    takes = np.flatnonzero(base.recorded.takes_part(ops))
    if not len(takes) or result is None or np.isin(ops.call, JOINS).any():
        return False
    given = [tensors_in(base, place, place + 1)[:2] for place in gap[takes[0] :]]
    return all(each and all(size_of(*tensor) != result.write_bytes for tensor in each) for each in given)


def _fill_a_buffer(base: Baseline, calls: list[Ints]) -> bool:
    """Return whether the program copies the result of each call to its part of what the next op reads, by recorded
    shapes. A result of another type, or with a dimension of its own, is not what the next call begins with."""
    first, last, after = int(calls[0][0]), int(calls[0][-1]), int(calls[-1][-1]) + 1
    given, written, read = (tensors_in(base, place, place + 1) for place in (first, last, after))
    if base.ops.call[last] != "aten::copy_" or not given or not written:
        return False
    kind, shape = written[0]
    fed = any(kind == each and set(shape) <= set(dims) for each, dims in given)
    return not fed and any(size_of(*each) == len(calls) * size_of(kind, shape) for each in read)


def _taking_parts(base: Baseline, stretch: list[Ints]) -> list[Ints]:
    """Return these calls, each from the op before which the program takes a part; empty if it takes none."""
    ops, takes, first = base.ops, base.recorded.takes_part(base.ops), np.array([call[0] for call in stretch])
    begin = next((place for place in range(len(stretch[0])) if takes[first[:-1] + place].mean() >= _ALIKE), None)
    if begin is None:
        return []
    return shifted(ops, stretch, begin)


def _of_one_network(ops: OpList, calls: list[Ints]) -> bool:
    """Return whether the calls are of the same layers where these are known, and not of recurrences or tokens."""
    same = all((ops.layer[call] == ops.layer[calls[0]]).all() for call in calls)
    return same and not any(_CARRIES.search(name) for name in ops.name[calls[0]])


def feeds_itself(base: Baseline, call: Ints) -> bool:
    """Return whether the call writes at its end as many bytes as it reads at its beginning, perhaps beside a bias, by
    recorded shapes."""
    given, last = tensors_in(base, int(call[0]), int(call[0]) + 1), base.ops.cost[call[-1]]
    read = given[1:2] if base.ops.name[call[0]] == "aten::addmm" and len(given) == _BIASED else given[:2]
    return last is not None and any(size_of(*each) == last.write_bytes for each in read)


def _first_update(ops: OpList) -> int:
    """Return the place of the first update of weights: calls behind it read others than those before it."""
    return int(next(iter(np.flatnonzero(in_phase(ops, "optimizer"))), len(ops)))


def _of_data(ops: OpList, items: int) -> bool:
    """Return whether one product of most calls has no gradient of its input, as a layer has that reads data."""
    layers, gradients = products_of_layers(ops)
    return 2 * layers - gradients + int(where(ops, _of_weights_alone).sum()) >= _ALIKE * items


def _of_weights_alone(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.work, ConvolutionGradients) and not cost.work.of_input


def products_of_layers(ops: OpList) -> tuple[int, int]:
    """Return the number of products of linear layers, and of their gradients."""
    layers = products(ops) & in_phase(ops, "forward") & (ops.call == "aten::linear")
    gradients = products(ops) & in_phase(ops, "backward") & which(ops.call, _OF_LAYER.search)
    return int(layers.sum()), int(gradients.sum())
