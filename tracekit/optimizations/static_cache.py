"""A KV cache of fixed size, written in place: its addresses and shapes never change."""

from dataclasses import replace

import pandas as pd

from analyzers.costs.call import Attention, Cost
from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from analyzers.prediction.memory import Memory
from tracekit.measurement.subject import Subject
from tracekit.optimizations.base import Optimization, Outcome, pick, refused
from tracekit.optimizations.extra_kernels import Extra, moving, with_extras
from tracekit.optimizations.retime import retimed

LENGTH = Interval(2.0, 1.25, 1.0)
"""Positions of the cache over those in use: attention reads and masks all of them."""
_INDEX_OPS = ("aten::arange", "aten::add", "aten::add_")
"""What transformers' StaticLayer.update launches beside the two writes, to know where to write."""
_MASK_OPS = 8
"""Kernels that make the mask of a forward pass, which a growing cache needs none of."""


class StaticCache(Optimization):
    id = "static-cache"
    title = "Static KV cache"
    caveats = (
        "Alone it may lose: attention reads the whole cache, and three more kernels a layer find the place to write.",
        "It is what CUDA graphs and torch.compile need while decoding: predict it with them.",
    )

    def objection(self, base: Baseline) -> str | None:
        if not _appends(base).any():
            return "No growing KV cache is appended to while decoding."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> pd.DataFrame:
        appends, length = _appends(base), pick(LENGTH, outcome)
        keys = _keys(base)
        shorter = retimed(base.ops[appends], lambda cost: _one_token(cost, keys), base.gpu, outcome)
        decoding = (base.ops.phase == "decode") & base.ops.cost.notna()
        longer = retimed(base.ops[decoding], lambda cost: _padded(cost, length), base.gpu, outcome)
        ops = base.ops.copy()
        ops.loc[decoding, ["kernel_ns", "cost"]] = longer[["kernel_ns", "cost"]]
        ops.loc[appends, ["kernel_ns", "cost"]] = shorter[["kernel_ns", "cost"]]
        ops.loc[appends, "name"] = "aten::index_copy_"
        places = appends.to_numpy().nonzero()[0]
        index = [Extra(name, moving(8, 8, "fp32")) for name in _INDEX_OPS]
        before = {int(row): list(index) for row in places[::2]}
        first = int((base.ops.phase == "decode").to_numpy().nonzero()[0][0])
        before[first] = before.get(first, []) + [Extra("mask", moving(2 * keys, 2 * keys, "fp16"))] * _MASK_OPS
        return with_extras(replace(base, ops=ops), before, {})

    def reason(self, base: Baseline) -> str:
        copied = sum(cost.bytes for cost in base.ops.cost[_appends(base)])
        return (
            f"Appending to the cache copies {copied / 1e6:.1f} MB a step; written in place, it moves one token, and "
            "graphs become possible."
        )

    def how_to(self, base: Baseline) -> str:
        return 'model.generate(**inputs, cache_implementation="static")'

    def apply(self, subject: Subject) -> Subject:
        if subject.settings.workload not in ("decode", "generate"):
            raise refused(self, "The workload does not decode.")
        return replace(subject, static_cache=True)

    def memory(self, base: Baseline, before: Memory) -> Memory:
        return replace(before, kv_cache=round(before.kv_cache * LENGTH.expected))


def _appends(base: Baseline) -> "pd.Series[bool]":
    """The two concatenations (keys, values) of each layer while decoding, the large ones by their bytes."""
    appended = (base.ops.name == "aten::cat") & (base.ops.phase == "decode") & base.ops.cost.notna()
    keys = _keys(base)
    if not keys or not appended.any():
        return appended & False
    written = base.ops.cost.map(lambda cost: cost.write_bytes if cost else 0)
    cached = min((_cache_bytes(cost) for cost in base.ops.cost[base.ops.phase == "decode"] if cost), default=0)
    return appended & (written >= max(0.5 * cached, 1))


def _cache_bytes(cost: Cost) -> float:
    """Bytes of the keys that an attention reads; infinite for other ops."""
    if not isinstance(cost.shape, Attention):
        return float("inf")
    return cost.read_bytes / 2 * cost.shape.keys / (cost.shape.keys + cost.shape.queries * _group(cost.shape))


def _group(shape: Attention) -> float:
    return shape.heads / shape.kv_heads / 2


def _keys(base: Baseline) -> int:
    shapes = [cost.shape for cost in base.ops.cost[base.ops.phase == "decode"] if cost]
    return max((shape.keys for shape in shapes if isinstance(shape, Attention)), default=0)


def _one_token(cost: Cost, keys: int) -> Cost:
    token = cost.write_bytes // keys
    return replace(cost, read_bytes=token, write_bytes=token)


def _padded(cost: Cost, length: float) -> Cost:
    if not isinstance(cost.shape, Attention):
        return cost
    keys = round(cost.shape.keys * length)
    grown = cost.read_bytes * (keys / cost.shape.keys)
    return replace(
        cost, flops=round(cost.flops * length), read_bytes=round(grown), shape=replace(cost.shape, keys=keys)
    )
