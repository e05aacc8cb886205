"""Speculative decoding: a small model drafts a few tokens, and one pass of the large model checks them all.

Tokens per pass, for an acceptance rate a and k drafted tokens: (1 - a^(k+1)) / (1 - a) (Leviathan et al., 2023).
"""

from typing import TYPE_CHECKING, Self

import numpy as np
from msgspec.structs import replace

from tracekit.advise.optimization import REWRITE, Optimization, refused
from tracekit.advise.optimizations.static_cache import MASK_OPS, PREPARING
from tracekit.advise.reasons import of_step, say
from tracekit.analyzers.core import InputError, Outcomes, numbers, outcomes
from tracekit.analyzers.cost import GPU, Attention, Cost, Product
from tracekit.analyzers.predict import (
    Baseline,
    Extra,
    OpList,
    Outcome,
    Rows,
    changed,
    distinct,
    in_phase,
    linear_product,
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
_NUMBERS = numbers(__file__)
ACCEPTANCE = _KNOWN["acceptance"]
"""Fraction of drafted tokens that the large model accepts, if nothing is known about draft model and text."""
DRAFT_LAYERS = _KNOWN["draft_layers"]
"""Host time of a draft's pass relative to the large model's: its layers, and the loop around it."""
DRAFT_BYTES = _NUMBERS["draft_bytes"]
"""Kernel time of a draft's pass relative to the large model's."""
CHECK_NS = _NUMBERS["check_ns"]
"""Host time per pass to compare drafted with computed tokens, and to truncate the cache."""
LOOP = _KNOWN["loop"]
"""The same for transformers' assisted generation, in plain launches: it prepares a generation with the draft, too."""
MOST_DRAFTED = 8
CHECKED = 4
"""Number of drafted tokens when the check is measured."""


class SpeculativeDecoding(Optimization):
    """A small draft model proposes tokens, and one pass of the large model checks them.

    One pass checks k drafted tokens: GEMMs and attention process k + 1 rows and read weights and keys once. Each of
    the k passes of the draft takes a tenth of the kernel time and 0.4 of the host time; comparing tokens and cutting
    the cache takes 150 µs. A pass yields (1 − aᵏ⁺¹) ÷ (1 − a) tokens at an acceptance rate a (Leviathan et al., 2023),
    0.7 (0.5 to 0.85) by default or as given: `speculative-decoding:0.8`, or `speculative-decoding:0.5-0.8`. k is the
    best number up to 8 for which GEMMs stay bound by memory: batch × (k + 1) rows below *sustained FLOP/s × bytes of a
    weight ÷ (2 × bandwidth)*.

    It needs a draft model, so it is in a plan only if nothing else helps. `tracekit verify` measures only the check of
    four tokens, without a draft model, and predicts the same: 2.32, 2.45 and 2.45 times; measured were 2.29, 2.44 and
    2.40 (GPT-2, Llama-1B, Mistral-7B). With `--draft MODEL`, whole generations with and without the draft model are
    timed, its acceptance is measured, and the prediction for that acceptance is shown; transformers' loop around the
    passes then takes the host time of 900 (600 to 1,500) plain launches instead of 150 µs.

    *Hurts* at a low acceptance rate, and at batches near the limit above.
    """

    id = "speculative-decoding"
    effort = REWRITE
    for_training = False
    of_a_pass = True

    def __init__(self, acceptance: Outcomes = ACCEPTANCE) -> None:
        self.acceptance = acceptance

    def with_argument(self, argument: str) -> Self:
        try:
            low, *rest = map(float, argument.split("-"))
            (high,) = rest or (low,)
        except ValueError:
            low = high = -1.0
        if not 0 < low <= high < 1:
            raise InputError(
                f"{argument!r} is no acceptance rate or interval of rates.",
                "They lie between 0 and 1, the lower one first.",
                f"Write: {self.id}:0.8 or {self.id}:0.5-0.8",
            )
        return type(self)(Outcomes(low, (low + high) / 2, high))

    def objection(self, base: Baseline) -> str | None:
        if not _decoding(base).any():
            return "The trace marks no decoding."
        if not _products(base):
            return "Decoding has no GEMM with weights."
        if self._largest(base) < 1:
            return "GEMMs would be compute-bound with one more row: checking a draft is not free."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        """Return times per token: those of one check and its drafts, divided by the tokens that they yield."""
        drafted = self.drafted(base)
        tokens = tokens_a_pass(pick(self.acceptance, outcome), drafted)
        rows = _decoding(base)
        check = retimed(base.ops[rows], lambda cost: with_rows(cost, drafted + 1), base.gpu, outcome)
        kernel = check.kernel_ns + drafted * DRAFT_BYTES * base.ops.kernel_ns[rows]
        host = base.ops.host_ns[rows] * (1 + drafted * pick(DRAFT_LAYERS, outcome))
        host[-1] += self._loop_ns(base, outcome)
        ops = put(base.ops, check.assign(kernel_ns=kernel / tokens))
        return ops.assign(host_ns=changed(ops.host_ns, rows, host / tokens))

    def _loop_ns(self, base: Baseline, outcome: Outcome) -> float:
        return CHECK_NS

    def drafted(self, base: Baseline) -> int:
        """Return the number of tokens to draft, with the largest gain at the expected acceptance.

        The check must stay memory-bound.
        """
        return self._best(base, 1.0)

    def _best(self, base: Baseline, check: float) -> int:
        """Return the best number of tokens to draft if a check takes `check` steps without a draft."""
        acceptance = self.acceptance.expected
        share = base.busy_ns / base.latency_ns
        draft = share * DRAFT_BYTES + (1 - share) * DRAFT_LAYERS.expected
        candidates = range(1, max(self._largest(base), 1) + 1)
        return max(candidates, key=lambda k: tokens_a_pass(acceptance, k) / (check + k * draft))

    def _largest(self, base: Baseline) -> int:
        """Return the largest number of drafted tokens at which the GEMMs are still bound by their weights' bytes."""
        batch = max(rows for rows, _ in _products(base))
        element = min(element for _, element in _products(base))
        return min(MOST_DRAFTED, int(_ridge_rows(base.gpu, element) / batch) - 1)

    def reason(self, base: Baseline) -> Statements:
        drafted, rate = self.drafted(base), self.acceptance.expected
        return (
            say(
                "speculative-decoding",
                of_step("drafted", "tokens", drafted),
                of_step("accepted", "share", rate),
                of_step("yielded", "tokens", tokens_a_pass(rate, drafted)),
            ),
        )

    def evidence(self, base: Baseline) -> Statements:
        most = max(rows for rows, _ in _products(base)) * (self._largest(base) + 1)
        bound = _ridge_rows(base.gpu, min(element for _, element in _products(base)))
        return (say("memory-bound-rows", of_step("bound", "rows", round(bound)), of_step("most", "rows", most)),)

    def how_to(self, base: Baseline) -> str:
        return (
            "draft = AutoModelForCausalLM.from_pretrained(smaller)  # same tokenizer\n"
            f"draft.generation_config.num_assistant_tokens = {self.drafted(base)}\n"
            "model.generate(**inputs, assistant_model=draft)"
        )

    def apply(self, subject: "Subject") -> "Subject":
        """Apply the part that needs no draft model: the check of drafted tokens, at the expected acceptance rate."""
        if subject.settings.workload != "decode" or subject.inputs is not None or subject.graphs:
            raise refused(self, "Its check is measured beside a decode step: --workload decode, without graphs.")
        tokens = tokens_a_pass(self.acceptance.expected, CHECKED)
        return replace(subject, checked=CHECKED, tokens_a_step=tokens)

    def memory(self, base: Baseline, before: Memory) -> Memory:
        return replace(before, weights=round(before.weights * (1 + DRAFT_BYTES)))


def tokens_a_pass(acceptance: float, drafted: int) -> float:
    return float((1 - acceptance ** (drafted + 1)) / (1 - acceptance))


def acceptance_of(tokens: float, drafted: int) -> float:
    """Return the acceptance rate at which a pass yields this many tokens; below 1."""
    low, high = 0.0, 0.999
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_a_pass(middle, drafted) < tokens else (low, middle)
    return low


def _decoding(base: Baseline) -> Rows:
    return in_phase(base.ops, "decode")


def _products(base: Baseline) -> list[tuple[int, float]]:
    """Return rows and bytes per element of the GEMMs with weights while decoding."""
    products = map(linear_product, distinct(base.ops.cost[_decoding(base)]))
    return [(product.rows, product.element) for product in products if product]


def _ridge_rows(gpu: GPU, element: float) -> float:
    """Return the number of rows above which GEMMs take longer to compute than to read their weights.

    A GEMM computes 2 FLOPs per weight and row.
    """
    precision = "fp32" if element >= 4 else "bf16"
    return gpu.sustained_flops(precision) * element / (2 * gpu.bandwidth * gpu.copy_efficiency)


def with_rows(cost: Cost, rows: int) -> Cost:
    """Return the cost for `rows` tokens instead of one; attention reads its keys once for all of them."""
    shape, cached = cost.work, cost.weight_bytes
    if isinstance(shape, Product):
        shape = replace(shape, m=shape.m * rows) if shape.weight else replace(shape, groups=shape.groups * rows)
    elif isinstance(shape, Attention):
        shape, cached = replace(shape, queries=shape.queries * rows), cost.read_bytes
    elif cost.family == "copy":
        return cost
    return replace(
        cost,
        flops=cost.flops * rows,
        read_bytes=cached + (cost.read_bytes - cached) * rows,
        write_bytes=cost.write_bytes * rows,
        work=shape,
    )


class AssistedGeneration(SpeculativeDecoding):
    """Speculative decoding by transformers' `generate(assistant_model=draft)`."""

    title = SpeculativeDecoding.title

    def __init__(self, acceptance: Outcomes = ACCEPTANCE, drafted: int = 0) -> None:
        """`drafted` is the number of tokens to draft; 0: the best."""
        super().__init__(acceptance)
        self._drafted = drafted

    def _loop_ns(self, base: Baseline, outcome: Outcome) -> float:
        return pick(LOOP, outcome) * plain_launch_ns(base)

    def drafted(self, base: Baseline) -> int:
        return self._drafted or self._best(base, 1 + self._loop_ns(base, "expected") / base.latency_ns)


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
