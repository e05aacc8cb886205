"""Copies the weights of an offloaded layer from the host while the previous layer computes."""

import numpy as np
import pandas as pd

from tracekit.analyzers.evidence import Statements, of_step, say
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.kernel_time.link_copies import copy_ns
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.values import Costs
from tracekit.analyzers.transforms.outcome import Outcome, pick
from tracekit.optimizations.base import Optimization, refused
from tracekit.optimizations.shared.host_device_copies import copied_bytes, copies, together
from tracekit.optimizations.shared.reasons import share_of
from tracekit.subjects.subject import Subject

SLOWER = Interval(1.4, 1.1, 1.0)
"""Time of a pinned copy relative to its modelled time."""
HIDDEN = Interval(0.3, 0.9, 1.0)
"""Fraction of the kernels' time during which copies proceed."""
LAYERS = 4
"""Number of copies to the device between kernels above which a model counts as offloaded layer by layer."""
NOTABLE = 0.2
"""Smallest fraction of the busy time that these copies must take."""


class OffloadOverlap(Optimization):
    """Offloaded weights are copied from the host while the previous layer computes.

    Four or more copies to the device between kernels, with at least a fifth of the busy time, are weights of a model
    that is offloaded layer by layer. They become pinned, and overlap with 30, 90 or 100 % of the kernels.

    *Refused* if there are no such copies.
    """

    id = "offload-overlap"
    title = "Offloaded weights copied ahead"
    mends_mistake = True
    costs = Costs("a layer's weights twice on the GPU; pinned host memory", "unchanged", "hooks, or a library")
    caveats = ("The link stays the bound: weights that fit on the GPU, if need be quantized, need no copies at all.",)

    def objection(self, base: Baseline) -> str | None:
        rows = _weights(base)
        if rows.sum() < LAYERS or base.ops.kernel_ns[rows].sum() < NOTABLE * base.busy_ns:
            return "No weights are copied from the host layer by layer."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> pd.DataFrame:
        rows, sizes = _weights(base), copied_bytes(base)
        modelled = np.array([copy_ns(int(size), base.gpu, "pinned") if size else np.inf for size in sizes])
        times = np.where(rows, np.minimum(base.ops.kernel_ns, modelled * pick(SLOWER, outcome)), base.ops.kernel_ns)
        ahead = base.ops.assign(kernel_ns=times, sync=base.ops.sync & ~rows)
        return together(ahead, rows, pick(HIDDEN, outcome))

    def reason(self, base: Baseline) -> Statements:
        rows = _weights(base)
        return (
            say(
                "offload-overlap",
                of_step("copies", "launches", int(base.ops.launches[rows].sum())),
                share_of(base, rows),
            ),
        )

    def how_to(self, base: Baseline) -> str:
        return (
            "weights = [w.pin_memory() for w in weights]  # once\n"
            "with torch.cuda.stream(copying):  # while the layer before computes\n"
            '    next_weights = weights[i + 1].to("cuda", non_blocking=True)\n'
            "torch.cuda.current_stream().wait_stream(copying)"
        )

    def apply(self, subject: Subject) -> Subject:
        raise refused(self, "It is a change of how the model is offloaded.")


def _weights(base: Baseline) -> "pd.Series[bool]":
    """Return the copies to the device with kernels before and after them."""
    kernels = np.flatnonzero(base.ops.category == "kernel")
    places = np.arange(len(base.ops))
    amid = (places > kernels[0]) & (places < kernels[-1]) if len(kernels) else np.zeros(len(base.ops), dtype=bool)
    return copies(base, "HtoD|-> Device") & amid
