"""Small programs of ranks, made by hand."""

import numpy as np

from tracekit.analyzers.ranks.program import Pace, Program


def program(own, transfer, step_own, blocks=True, device=None, synced=np.nan):
    """Return a step from own times before each call (ranks × calls) on one stream; `device` is the device's part."""
    ranks, count = own.shape
    pace = Pace(own.ravel(), (own if device is None else device).ravel())
    steps = np.asarray(step_own, dtype=float)[:, None]
    return Program(
        rank=np.repeat(np.arange(ranks), count),
        call=np.tile(np.arange(count), ranks),
        stream=np.repeat(np.arange(ranks), count),
        step=np.zeros(ranks * count, dtype=int),
        start=pace,
        end=pace,
        synced=np.full(ranks * count, np.nan),
        blocks=np.full(ranks * count, blocks),
        kind=np.full(ranks * count, "all-reduce"),
        transfer=np.asarray(transfer, dtype=float),
        order=np.arange(count),
        begin=np.zeros(ranks),
        step_end=Pace(steps, steps if device is None else steps - (own - device)[:, -1:]),
        step_synced=np.full((ranks, 1), synced),
        step_at=np.array([count]),
    )
