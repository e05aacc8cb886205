"""The check of drafted tokens, the part of speculative decoding that can be measured without a draft model."""

from dataclasses import replace

import numpy as np

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.work import Attention
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.by_cost import in_phase, where
from tracekit.analyzers.transforms.extra_kernels import Extra, moving, with_extras
from tracekit.analyzers.transforms.masked_attention import with_masks
from tracekit.analyzers.transforms.outcome import Outcome, pick
from tracekit.analyzers.transforms.retime import put, retimed
from tracekit.optimizations.speculative_decoding import CHECKED, SpeculativeDecoding, tokens_a_pass, with_rows
from tracekit.optimizations.static_cache import MASK_OPS, PREPARING


class DraftCheck(SpeculativeDecoding):
    """One pass over the next token and `CHECKED` drafted tokens, divided by the tokens that it yields on average.

    Several tokens on a cache need a mask; one token does not.
    """

    title = "Check of drafted tokens"

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        decoding = in_phase(base.ops, "decode")
        checked = retimed(base.ops[decoding], lambda cost: with_rows(cost, CHECKED + 1), base.gpu, outcome)
        ops = put(base.ops, checked)
        run = replace(base, ops=ops)
        host = pick(PREPARING, outcome)
        masked = with_masks(run, where(ops, _is_attention) & decoding, outcome, host=host)
        made = [Extra("mask", moving(1024, 1024), host=host)] * MASK_OPS
        ops = with_extras(replace(run, ops=masked), {int(decoding.argmax()): made}, {})
        tokens = tokens_a_pass(self.acceptance.expected, CHECKED)
        share = np.where(in_phase(ops, "decode"), tokens, 1.0)
        return ops.assign(kernel_ns=ops.kernel_ns / share, host_ns=ops.host_ns / share)


def _is_attention(cost: Cost | None) -> bool:
    return cost is not None and isinstance(cost.work, Attention)
