"""Serving with a paged KV cache and in-flight batching, in which a finished sequence's slot is reused at once."""

import numpy as np

from tracekit.advise.optimization import REWRITE, Optimization, refused
from tracekit.advise.reasons import of_step, say, share_of
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import Attention
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, pick, where
from tracekit.analyzers.results import Statements
from tracekit.apply import Subject
from tracekit.reports.words import shell_word

_KNOWN = outcomes(__file__)
OCCUPANCY = _KNOWN["occupancy"]
"""Mean fraction of a static batch's slots in use; each waits for the longest answer."""
IN_FLIGHT = 0.95
"""Mean fraction of slots in use if the slot of a finished sequence is given to the next request."""
ATTENTION = _KNOWN["attention"]
"""Time of attention through a page table, relative to contiguous keys."""
RESERVED_USED = _KNOWN["reserved_used"]
"""Fraction of a contiguous KV cache, reserved for the longest answer, that holds tokens."""
PAGED_USED = 0.96
"""Fraction of pages of 16 tokens that holds tokens."""


class PagedKV(Optimization):
    """Serving with a paged KV cache and in-flight batching (vLLM, SGLang, `generate_batch` of transformers).

    The time per useful token is multiplied by occupancy ÷ 0.95. A static batch keeps 0.6 (0.4 to 0.8) of its slots at
    work, because each waits for the longest answer. Attention through a page table takes 1.2 (1.0 to 1.26) times as
    long (Kwon et al., 2023: 20 to 26 % longer). Pages hold tokens in 0.96 of their memory, contiguous caches in 0.2 to
    0.6 (same source: 20 to 38 %). Requests are assumed to wait at all times, and lengths of answers to be spread
    evenly.

    *Refused* for a batch of one.
    """

    id = "paged-kv"
    effort = REWRITE
    for_training = False
    of_a_pass = True
    throughput = True

    def objection(self, base: Baseline) -> str | None:
        if not (base.ops.phase == "decode").any():
            return "The trace marks no decoding."
        if _attends(base).sum() == 0:
            return "Attention is not fused: serving engines replace it with their own."
        batch = base.source.capture.batch_size if base.source.capture else 0
        return (
            None if batch > 1 else "A single request leaves no slot idle, and has no memory that another one could use."
        )

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        """Scale the times to one useful token, because idle slots do useless work."""
        attends = _attends(base)
        useful = IN_FLIGHT / pick(OCCUPANCY, outcome)
        kernel = base.ops.kernel_ns * np.where(attends, pick(ATTENTION, outcome), 1.0)
        decoding = base.ops.phase == "decode"
        return base.ops.assign(
            kernel_ns=np.where(decoding, kernel / useful, kernel),
            host_ns=np.where(decoding, base.ops.host_ns / useful, base.ops.host_ns),
        )

    def reason(self, base: Baseline) -> Statements:
        batch = base.source.capture.batch_size if base.source.capture else 0
        return (
            say(
                "paged-kv",
                of_step("batch", "batch", batch),
                of_step("occupied", "share", OCCUPANCY.expected),
                of_step("in_flight", "share", IN_FLIGHT),
                of_step("ratio", "ratio", PAGED_USED / RESERVED_USED.expected),
            ),
        )

    def evidence(self, base: Baseline) -> Statements:
        return (say("attention-share", share_of(base, _attends(base))),)

    def how_to(self, base: Baseline) -> str:
        capture = base.source.capture
        model = shell_word(capture.model) if capture and capture.model else "MODEL"
        return f"vllm serve {model}  # or: model.generate_batch(inputs) of transformers, with paged attention"

    def apply(self, subject: Subject) -> Subject:
        raise refused(self, "It needs a serving engine and many requests, which a step of one model does not have.")


def _attends(base: Baseline) -> Rows:
    attends = where(base.ops, lambda cost: cost is not None and isinstance(cost.work, Attention))
    return attends & in_phase(base.ops, "decode")
