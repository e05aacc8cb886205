"""A KV cache of fixed size, which is written in place, so that its addresses and shapes never change."""

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tracekit.advise.optimization import Optimization, refused
from tracekit.advise.optimizations.host_work import named_causes
from tracekit.advise.reasons import of_step, say, share_of
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import Append, Attention, Cost
from tracekit.analyzers.predict import (
    Baseline,
    Extra,
    OpList,
    Outcome,
    Rows,
    changed,
    covered,
    distinct,
    in_phase,
    is_compiled,
    is_masked,
    moving,
    pick,
    plain_launch_ns,
    put,
    retimed,
    where,
    with_extras,
    with_masks,
)
from tracekit.analyzers.results import Memory, Statements

if TYPE_CHECKING:
    from tracekit.apply import Subject

_KNOWN = outcomes(__file__)
LENGTH = _KNOWN["length"]
"""Positions of the cache relative to those in use, because attention reads and masks all of them. At best it is just
long enough."""
INDEXING = _KNOWN["indexing"]
"""Host time of each op that finds the place to write, in plain launches."""
PREPARING = _KNOWN["preparing"]
"""Host time of each op that prepares a mask, keys or values, in plain launches."""
MASKED_CALL = _KNOWN["masked_call"]
"""Host time that a call of fused attention with a mask adds, in plain launches."""
_INDEX_OPS = ("aten::arange", "aten::add", "aten::add_", "index_copy_ (checks)", "index_copy_ (checks)")
"""Ops of transformers' StaticLayer.update that compute the position, without the two writes."""
WRITTEN = "aten::index_copy_"
"""Name of the writes of a token's keys and values."""
MASK_OPS = 8
"""Number of kernels that build the mask of a forward pass, which a growing cache does not need."""


class StaticCache(Optimization):
    """A KV cache of fixed size, written in place.

    Two concatenations per layer, which copy the whole cache, become writes of one token. Five ops of one (0.5 to 1.8)
    plain launch each compute the position, and fused attention needs a mask up to the end of the cache: one op converts
    it to numbers, one aligns it for kernels other than cuDNN's, and grouped keys and values are repeated for each query
    head (two copies). Each of these takes the host time of 3.5 (2.2 to 5) plain launches and the call with a mask 12.5
    (8 to 17) more (24 to 33 per layer in all, measured on an H200 host); eight ops make the mask of a forward pass.
    Unfused attention already has a mask. The cache is as long as needed, at the lower end 1.5 times as
    long.

    *Hurts* alone, because it adds launches. CUDA graphs need it while decoding.
    """

    id = "static-cache"
    for_training = False

    def objection(self, base: Baseline) -> str | None:
        if not appended(base).any():
            return "Decoding does not append to a growing KV cache."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        return moved_to_static_cache(base, outcome)

    def reason(self, base: Baseline) -> Statements:
        copied = sum(cost.bytes for cost in base.ops.cost[appended(base)])
        return (say("static-cache", of_step("copied", "bytes", copied)),)

    def evidence(self, base: Baseline) -> Statements:
        rows = appended(base)
        planning = named_causes(base, ("planning",))
        return (
            *planning,
            say("concatenations", of_step("copies", "launches", int(rows.sum())), share_of(base, rows)),
        )

    def apply(self, subject: "Subject") -> "Subject":
        if subject.settings.workload not in ("decode", "generate"):
            raise refused(self, "The workload does not decode.")
        return replace(subject, static_cache=True)

    def memory(self, base: Baseline, before: Memory) -> Memory:
        return replace(before, kv_cache=round(before.kv_cache * LENGTH.expected))


def appended(base: Baseline) -> Rows:
    """Return the concatenations that add a decoded token's keys, values or latents to the cache."""
    return where(base.ops, _appends) & in_phase(base.ops, "decode")


def _appends(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.work, Append)


def moved_to_static_cache(base: Baseline, outcome: Outcome) -> OpList:
    """Return the op list with a static cache: appends write one token, and attention is masked to the cache's end.
    Because shapes stay the same, no op plans its kernel again."""
    base = replace(base, ops=base.ops.assign(host_ns=base.ops.host_ns - base.planning))
    decode = in_phase(base.ops, "decode")
    if not decode.any():
        return base.ops
    appends, decoding = appended(base), where(base.ops, _decodes) & decode
    longer = retimed(base.ops[decoding], lambda cost: _padded(cost, pick(LENGTH, outcome)), base.gpu, outcome)
    shorter = retimed(base.ops[appends], _one_token, base.gpu, outcome)
    ops = put(put(base.ops, longer), shorter)
    longer_ns = ops.kernel_ns * np.where(covered(base) & decode, pick(LENGTH, outcome), 1.0)
    ops = ops.assign(name=changed(ops.name, appends, WRITTEN), kernel_ns=longer_ns)
    if not is_compiled(base):
        masking_ns = pick(MASKED_CALL, outcome) * plain_launch_ns(base)
        ops = ops.assign(host_ns=ops.host_ns + masking_ns * (decoding & ~is_masked(ops)))
    ops = with_masks(replace(base, ops=ops), decoding, outcome, host=pick(PREPARING, outcome))
    return _with_indices(replace(base, ops=ops), pick(INDEXING, outcome))


def _with_indices(base: Baseline, host: float) -> OpList:
    """Add the ops that compute the position to write, per layer, and those that build the mask of a pass.

    Unfused attention already has a mask. Generated code has these ops in the kernels that write.
    """
    places = (base.ops.name == WRITTEN).nonzero()[0]
    if not len(places) or is_compiled(base):
        return base.ops
    added = [Extra(name, moving(8, 8, "fp32"), host=host) for name in _INDEX_OPS]
    before = {int(row): list(added) for row in places[::2]}
    if keys := max(_fused_keys(base), default=0):
        first = int(in_phase(base.ops, "decode").argmax())
        before[first] = before.get(first, []) + [Extra("mask", moving(2 * keys, 2 * keys, "fp16"))] * MASK_OPS
    return with_extras(base, before, {})


def _fused_keys(base: Baseline) -> list[int]:
    """Return the number of keys of each fused attention while decoding."""
    shapes = (cost.work for cost in distinct(base.ops.cost[in_phase(base.ops, "decode")]))
    return [shape.keys for shape in shapes if isinstance(shape, Attention)]


def _one_token(cost: Cost) -> Cost:
    assert isinstance(cost.work, Append)
    token = cost.write_bytes * cost.work.added // cost.work.rows
    return replace(cost, read_bytes=token, write_bytes=token, work=None)


def _decodes(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.work, Attention) and cost.work.queries == 1


def _padded(cost: Cost, length: float) -> Cost:
    assert isinstance(cost.work, Attention)
    keys = round(cost.work.keys * length)
    grown = cost.read_bytes * (keys / cost.work.keys)
    return replace(cost, flops=round(cost.flops * length), read_bytes=round(grown), work=replace(cost.work, keys=keys))
