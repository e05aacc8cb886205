"""Copies between host and GPU while the GPU computes: weights of offloaded layers, batches and results."""

import numpy as np

from tracekit.analyzers.evidence import Statements, of_step, say
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.prediction.values import Costs
from tracekit.analyzers.transforms.by_cost import Rows
from tracekit.analyzers.transforms.outcome import Outcome, pick
from tracekit.optimizations.base import Optimization, refused
from tracekit.optimizations.shared.host_device_copies import copies, pinned_ns, together
from tracekit.optimizations.shared.reasons import share_of
from tracekit.subjects.subject import Subject

HIDDEN = Interval(0.3, 0.9, 1.0)
"""Fraction of the kernels' time during which copies proceed."""
LAYERS = 4
"""Number of copies to the device between kernels above which a model counts as offloaded layer by layer."""
NOTABLE = 0.2
"""Smallest fraction of the busy time that these copies must take."""

ONE_STREAM = 1.0
"""Smallest possible fraction of the busy time if no work can overlap."""


class OffloadOverlap(Optimization):
    """Offloaded weights, batches and results are copied while the GPU computes.

    Four or more copies to the device between kernels are weights of a model that is offloaded layer by layer. They, and
    those of the first layer, become pinned, and overlap with 30, 90 or 100 % of the kernels. If all work is on one
    stream, pinned copies, such as those of inputs and results, overlap as well: a GPU copies in both directions while
    it computes.

    *Refused* if such copies take less than a fifth of the busy time.
    """

    id = "offload-overlap"
    title = "Copies while the GPU computes"
    fixes_mistake = True
    costs = Costs("two buffers for copies on the GPU; pinned host memory", "unchanged", "hooks, a library, or a stream")
    caveats = ("The link remains the bound: weights that fit on the GPU, quantized if necessary, need no copies.",)

    def objection(self, base: Baseline) -> str | None:
        if base.ops.kernel_ns[_waited_for(base)].sum() < NOTABLE * base.busy_ns:
            return "Neither copies of weights between layers nor pinned copies take a fifth of the GPU's time."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        rows = _waited_for(base)
        times = pinned_ns(base, rows & ~copies(base, "Pinned"), outcome)
        ahead = base.ops.assign(kernel_ns=times, sync=base.ops.sync & ~rows)
        return together(ahead, rows, pick(HIDDEN, outcome))

    def reason(self, base: Baseline) -> Statements:
        rows = _waited_for(base)
        return (
            say(
                "offload-overlap",
                of_step("copies", "launches", int(base.ops.launches[rows].sum())),
                share_of(base, rows),
            ),
        )

    def how_to(self, base: Baseline) -> str:
        if not _weights(base).any():
            return (
                "coming = torch.cuda.Stream()  # another for results that leave; two buffers each\n"
                "with torch.cuda.stream(coming):  # while this batch is computed\n"
                '    next_batch = pinned.to("cuda", non_blocking=True)\n'
                "torch.cuda.current_stream().wait_stream(coming)"
            )
        return (
            "weights = [w.pin_memory() for w in weights]  # once\n"
            "with torch.cuda.stream(copying):  # while the layer before computes\n"
            '    next_weights = weights[i + 1].to("cuda", non_blocking=True)\n'
            "torch.cuda.current_stream().wait_stream(copying)"
        )

    def apply(self, subject: Subject) -> Subject:
        raise refused(self, "It is a change of the code that offloads the model.")


def _waited_for(base: Baseline) -> Rows:
    """Return the copies of offloaded weights and, where all work is on one stream, pinned copies in both directions."""
    return _weights(base) | (copies(base, "Pinned") & (base.side_by_side == ONE_STREAM))


def _weights(base: Baseline) -> Rows:
    """Return the copies to the device before the last kernel, if enough of them lie between kernels."""
    kernels = np.flatnonzero(base.ops.category == "kernel")
    places, coming = np.arange(len(base.ops)), copies(base, "HtoD|-> Device")
    between = coming & (places > kernels.min(initial=len(places))) & (places < kernels.max(initial=-1))
    return coming & (places < kernels.max(initial=-1)) & (between.sum() >= LAYERS)
