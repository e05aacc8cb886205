"""Larger batches: more sequences in a step, and a cache in pages, which holds more of them."""

from functools import partial
from typing import TYPE_CHECKING, Self

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tracekit.advise.optimization import REWRITE, Optimization, refused
from tracekit.advise.reasons import idle, of_step, say, share_of
from tracekit.analyzers.attribute import is_communication
from tracekit.analyzers.core import InputError, Outcomes, numbers, outcomes
from tracekit.analyzers.cost import Attention, batched
from tracekit.analyzers.predict import (
    MOST_TO_LAUNCH_NS,
    Baseline,
    OpList,
    Outcome,
    Outside,
    Rows,
    compute_bound_from,
    in_phase,
    largest_that_fits,
    optimizes,
    pick,
    present,
    retimed,
    streams_weights,
    where,
)
from tracekit.analyzers.results import Memory, Statements
from tracekit.analyzers.trace import CaptureInfo
from tracekit.reports.words import shell_word

if TYPE_CHECKING:
    from tracekit.apply import Subject

FACTOR = 8
"""Growth of the batch that is predicted, unless a batch is given."""
_NOTABLE = 0.05
"""Smallest share that the reason names."""
_KNOWN = outcomes(__file__)
_NUMBERS = numbers(__file__)
UNKNOWN = _KNOWN["unknown"]
"""Exponent of the growth of kernels without a known cost, relative to that of their grids."""
NARROW = _KNOWN["narrow"]
"""The same exponent for GEMMs of few rows. They read their weights once for more rows, too, unless both operands belong
to a sequence, as in attention."""
_FEW_ROWS = 16
"""Shorter side of a tile up to which a GEMM has few rows: libraries choose wider tiles for more."""


class Batching(Optimization):
    """More sequences in a step; `batching:32` sets the batch, the default is 8 times the current one.

    The rows of GEMMs grow with the batch, weights are read once for all of them, and everything else grows in
    proportion; for kernels of which only the grid is known, as in a graph, the number of waves of blocks grows in
    proportion at worst, and less if their names show GEMMs with few rows. The gain is in throughput: a step takes
    longer. The reason gives the batch from which GEMMs are compute-bound, and the largest batch that fits.

    If graphs replay the step and its batch is unknown, it counts as one.
    """

    id = "batching"
    needs_torch = False
    throughput = True

    def __init__(self, batch: int = 0) -> None:
        self.batch = batch
        self.title = f"A batch of {batch}" if batch else f"A batch {FACTOR} times as large"

    def with_argument(self, argument: str) -> Self:
        if not argument.isdecimal() or int(argument) < 1:
            raise InputError(f"{argument!r} is not a batch size.", "It must be 1 or more.", "Write: batching:32")
        return type(self)(int(argument))

    def objection(self, base: Baseline) -> str | None:
        if not base.batch_size and not base.running.is_graphed:
            return "Neither the trace nor the shapes of its ops determine its batch size."
        if self.batch and self.batch == base.batch_size:
            return f"The batch is {self.batch} already."
        batch, largest = self.batch_after(base), largest_that_fits(base)
        if largest is not None and batch > max(largest, base.batch_size):
            return f"A batch of {batch} does not fit: {base.gpu.memory_gb:g} GB hold one of {largest}."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        """Enlarge all ops.

        Host work other than launches, such as loading data, also grows with the number of sequences; that of an
        optimizer does not, and unexplained time grows by a power of it.
        """
        ops, factor = retimed(base.ops, partial(batched, factor=self.work(base)), base.gpu, outcome), self.work(base)
        ops = ops.assign(kernel_ns=ops.kernel_ns * _unknown_growth(base, factor, outcome))
        more = factor ** pick(_unexplained(base), outcome) - 1
        return ops.assign(host_ns=ops.host_ns + more * _time_beyond_launching(ops))

    def outside(self, base: Baseline, outcome: Outcome) -> Outside:
        return base.outside.grown(max(1.0, self.work(base)), pick(_unexplained(base), outcome))

    def work(self, base: Baseline) -> float:
        return self.batch_after(base) / max(1, base.batch_size)

    def batch_after(self, base: Baseline) -> int:
        return self.batch or FACTOR * max(1, base.batch_size)

    def settings(self, base: Baseline, capture: CaptureInfo) -> CaptureInfo:
        return msgspec.structs.replace(capture, batch_size=self.batch_after(base))

    def memory(self, base: Baseline, before: Memory) -> Memory:
        """Scale the memory of sequences. Weights, gradients and the optimizer's state do not change."""
        factor = self.work(base)
        growing = {name: round(factor * getattr(before, name)) for name in ("kv_cache", "activations", "loss")}
        return replace(before, **growing)

    def reason(self, base: Baseline) -> Statements:
        return (*_paid_once(base), *_limits(base))

    def how_to(self, base: Baseline) -> str:
        capture, batch = base.source.capture, self.batch_after(base)
        if capture and capture.model:
            return f"tracekit profile --model {shell_word(capture.model)} --batch-size {batch}  # to see it"
        now = f"in place of {base.batch_size}" if base.batch_size else "if it is one now"
        return f"batch = torch.cat(requests[:{batch}])  # {batch} in a step, {now}"

    def apply(self, subject: "Subject") -> "Subject":
        if subject.inputs is not None:
            raise refused(self, "The inputs of your own model have one batch size: give other inputs.")
        batch = self.batch or FACTOR * subject.settings.batch_size
        return replace(subject, settings=subject.settings.changed(batch_size=batch)).with_own_weights()


def _time_beyond_launching(ops: OpList) -> npt.NDArray[np.float64]:
    """Return the unexplained host time of each op beyond a launch; 0 for an optimizer's op."""
    return np.where(optimizes(ops), 0.0, np.maximum(ops.host_ns - MOST_TO_LAUNCH_NS, 0.0))


def _unexplained(base: Baseline) -> Outcomes:
    """Return the exponent of the growth of unexplained host time, relative to that of the batch.

    At worst it is work for each sequence, such as loading it, and at best a pause. The more of a step it takes, the
    less likely it is a pause, so the expected exponent is its fraction of the step.
    """
    time = float(_time_beyond_launching(base.ops).sum()) + base.outside.total(("unexplained",))
    return Outcomes(1.0, min(1.0, time / max(base.latency_ns, 1.0)), 0.0)


def _unknown_growth(base: Baseline, factor: float, outcome: Outcome) -> npt.NDArray[np.float64]:
    """Return the growth of the time of kernels of which only the grid is known, such as those of a CUDA graph.

    At best none takes longer. At worst the number of blocks grows with the batch, and they run in waves on the
    multiprocessors. GEMMs of few rows grow less.
    """
    grids, waves_of = base.recorded.grids(base.ops), base.gpu.sms
    more = np.ceil(grids * factor / waves_of) / np.ceil(np.maximum(grids, 1) / waves_of)
    worst = np.where(grids > 0, np.maximum(more, 1.0), max(factor, 1.0))
    known = base.ops.costed | (base.ops.category != "kernel")
    sides = base.recorded.tile_sides(base.ops)
    exponent = np.where((sides > 0) & (sides <= _FEW_ROWS), pick(NARROW, outcome), pick(UNKNOWN, outcome))
    return np.where(known, 1.0, worst**exponent)


def _paid_once(base: Baseline) -> Statements:
    """Return the times that a step pays once for any batch: idle time, weights and collectives."""
    reading = where(base.ops, lambda cost: cost is not None and streams_weights(cost, base.gpu))
    collectives = share_of(base, present(base.ops.message) | is_communication(base.ops.name))
    parts = {"batching-idle": idle(base), "batching-weights": share_of(base, reading), "batching-links": collectives}
    notable = tuple(say(kind, value) for kind, value in parts.items() if float(value.value) >= _NOTABLE)
    return notable or (say("batching-small"),)


def _limits(base: Baseline) -> Statements:
    """Return the batch sizes at which the gain ends."""
    turning, largest = compute_bound_from(base), largest_that_fits(base)
    now = base.batch_size
    bound: Statements = ()
    if turning:
        bound = (say("batch-compute-bound", of_step("batch", "batch", turning)),)
    if turning and turning <= now:
        bound = (say("batch-compute-bound-now"),)
    has = of_step("memory", "bytes", base.gpu.memory_bytes)
    return (*bound, say("batch-that-fits", has, of_step("batch", "batch", largest))) if largest else bound


OCCUPANCY = _KNOWN["occupancy"]
"""Mean fraction of a static batch's slots in use; each waits for the longest answer."""
IN_FLIGHT = _NUMBERS["in_flight"]
"""Mean fraction of slots in use if the slot of a finished sequence is given to the next request."""
ATTENTION = _KNOWN["attention"]
"""Time of attention through a page table, relative to contiguous keys."""
RESERVED_USED = _KNOWN["reserved_used"]
"""Fraction of a contiguous KV cache, reserved for the longest answer, that holds tokens."""
PAGED_USED = _NUMBERS["paged_used"]
"""Fraction of pages of 16 tokens that holds tokens."""


class PagedKV(Optimization):
    """Serving with a paged KV cache and in-flight batching (vLLM, SGLang, `generate_batch` of transformers).

    The time per useful token is multiplied by occupancy ÷ 0.95. A static batch keeps 0.6 (0.4 to 0.8) of its slots at
    work, because each waits for the longest answer. Attention through a page table takes 1.2 (1.0 to 1.26) times as
    long (Kwon et al., 2023: 20 to 26 % longer). Pages hold tokens in 0.96 of their memory, contiguous caches in 0.2 to
    0.6 (same source: 20 to 38 %). Requests are assumed to wait always, and lengths of answers to spread evenly.

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

    def apply(self, subject: "Subject") -> "Subject":
        raise refused(self, "It needs a serving engine and many requests, which a step of one model does not have.")


def _attends(base: Baseline) -> Rows:
    attends = where(base.ops, lambda cost: cost is not None and isinstance(cost.work, Attention))
    return attends & in_phase(base.ops, "decode")
