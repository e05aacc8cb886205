"""Simulates the gain of a job from changes: mended ranks and links, overlapped and free communication."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.ranks.aligned import AlignedRanks
from tracekit.analyzers.ranks.bucket_sizes import in_larger_buckets
from tracekit.analyzers.ranks.result import WhatIf
from tracekit.analyzers.ranks.simulate import with_transfers
from tracekit.analyzers.ranks.stragglers import Costs

LARGER_BUCKETS = 4
"""Times as large as buckets are."""
Floats = npt.NDArray[np.float64]


def what_ifs(job: AlignedRanks, cost: Costs, collectives: pd.DataFrame, faster: Floats | None) -> tuple[WhatIf, ...]:
    """Return the gains, largest first, and that of free transfers last.

    `faster` is the factor by which a mended link changes each collective's transfer; None without a slow link.
    """
    gains = [WhatIf("mend", job.numbers[each.rank], 1 / max(1 - each.share.expected, 1e-3)) for each in cost.named]
    last = collectives.groupby("step")["start_ns"].transform("max") == collectives["start_ns"]
    overlapped = np.where(last & (collectives["step"] >= 0), 0.0, 1.0)
    free = np.zeros(len(collectives))
    larger = in_larger_buckets(job, collectives, LARGER_BUCKETS)
    factors = {"mend-link": faster, "larger-buckets": larger, "overlap-last": overlapped, "free-transfers": free}
    for change, factor in factors.items():
        if factor is not None:
            gains.append(_with_factors(job, cost, collectives, change, factor))
    return tuple(sorted(gains, key=lambda each: (each.change == "free-transfers", -each.speedup)))


def _with_factors(job: AlignedRanks, cost: Costs, collectives: pd.DataFrame, change: str, factors: Floats) -> WhatIf:
    """Return the gain if the transfer of each collective takes its factor times as long."""
    of_call = np.ones(len(job.program.transfer))
    of_call[collectives["call"].to_numpy()] = factors
    total = float(cost.step_ns.sum())
    return WhatIf(change, -1, total / max(float(with_transfers(job.program, of_call).sum()), 1.0))
