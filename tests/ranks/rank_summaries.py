"""Small summaries of ranks, made by hand."""

import numpy as np
import pandas as pd

from tracekit.analyzers.ranks import RankSummary
from tracekit.analyzers.ranks.tables import RANK_CALLS, RANK_IDLE, RANK_STEPS, RANK_WORK
from tracekit.analyzers.trace import ProcessGroup
from tracekit.analyzers.trace.trace import PROBLEMS

MS = 1_000_000


def summary(number, calls, world=2, groups=(), steps=1, wall_ms=100, base_ns=0):
    """Return a summary. `calls` are dicts of columns of RANK_CALLS, with start and end in ms."""
    table = pd.DataFrame(calls)
    defaults = {
        "step": 0,
        "group": "",
        "sequence": -1,
        "kind": "all-reduce",
        "name": "k",
        "phase": "",
        "dtype": "float",
    }
    defaults |= {"bytes": 1000, "peer": -1, "stream": 7, "beside_ns": 0, "blocks": True}
    filled = {name: table.get(name, pd.Series([value] * len(table))) for name, value in defaults.items()}
    start, end = (table[name].to_numpy() * MS for name in ("start", "end"))
    waited = np.cumsum(end - start) - (end - start)
    times = {"start_ns": start, "end_ns": end, "host_start_ns": start}
    times |= dict.fromkeys(("own_start_ns", "own_end_ns", "device_start_ns", "device_end_ns"), start - waited)
    times |= {"synced_ns": np.full(len(table), -1)}
    exposed = int((end - start).sum())
    begin = np.arange(steps) * wall_ms * MS
    rows = RANK_STEPS.frame(
        {
            "step": np.arange(steps),
            "start_ns": begin,
            "wall_ns": np.full(steps, wall_ms * MS),
            "compute_ns": np.full(steps, wall_ms * MS - exposed),
            "communication_ns": np.full(steps, exposed),
            "exposed_communication_ns": np.full(steps, exposed),
            "exposed_copy_ns": np.zeros(steps),
            "idle_ns": np.zeros(steps),
            "own_start_ns": begin,
            "own_end_ns": begin + wall_ms * MS - exposed,
            "device_start_ns": begin,
            "device_end_ns": begin + wall_ms * MS - exposed,
            "synced_ns": np.full(steps, -1),
            "flops": np.zeros(steps),
            "bytes": np.zeros(steps),
        }
    )
    return RankSummary(
        rank=number,
        world_size=world,
        host="",
        groups=tuple(ProcessGroup(name, ranks) for name, ranks in groups),
        device_name="",
        gpu="",
        device_index=-1,
        base_ns=base_ns,
        steps=rows,
        idle=RANK_IDLE.empty(),
        calls=RANK_CALLS.frame({**filled, **times}),
        work=RANK_WORK.empty(),
        problems=PROBLEMS.empty(),
    )


def call(start, end, **columns):
    return {"start": start, "end": end, **columns}
