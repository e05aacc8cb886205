"""The critical path of a job: the chain of own time and transfers that ends last, over all ranks.

It is followed backwards from the end of the last step: own time of the rank that ended last, back to the end of the
collective that it waited for; the transfer of that collective; then the rank that arrived there last; and so on. The
parts tile the job's time exactly.
"""

import numpy as np
import pandas as pd

from tracekit.analyzers.ranks.simulate import NONE, Simulated
from tracekit.analyzers.ranks.tables import CRITICAL_PATH


def critical_path(run: Simulated, group_of_call: np.ndarray, numbers: list[int]) -> pd.DataFrame:
    """Return CRITICAL_PATH in order of time. Each part lies within one step."""
    pieces = [piece for piece in _pieces(run) if piece[1] > piece[0]]
    begin, end, rank, call = (
        (np.array(column) for column in zip(*pieces[::-1], strict=True)) if pieces else [np.array([])] * 4
    )
    edges = run.step_end
    cut = np.unique(np.concatenate([begin, end, edges[(edges > run.start)]]))
    left, right = cut[:-1], cut[1:]
    piece = np.minimum(np.searchsorted(end, left, "right"), max(len(end) - 1, 0))
    own = call[piece] == NONE
    return CRITICAL_PATH.frame(
        {
            "step": np.minimum(np.searchsorted(edges, left, "right"), len(edges) - 1),
            "kind": np.where(own, "own", "transfer").astype(object),
            "rank": np.where(own, np.asarray(numbers)[rank[piece].astype(int)], -1),
            "group": np.where(own, -1, np.append(group_of_call, -1)[call[piece].astype(int)]),
            "start_ns": left,
            "duration_ns": right - left,
        }
    )


def _pieces(run: Simulated) -> list[tuple[float, float, int, int]]:
    """Return (begin, end, rank, call) of each part, last part first; `call` is NONE for own time of a rank."""
    step = len(run.step_end) - 1
    rank, waited, until = int(run.step_rank[step]), int(run.step_waited[step]), float(run.step_end[step])
    pieces = []
    while waited != NONE and run.end[waited] > run.start:
        pieces.append((float(run.end[waited]), until, rank, NONE))
        call = waited
        rank, until, waited = int(run.last_rank[call]), float(run.arrival[call]), int(run.waited[call])
        pieces.append((until, float(run.end[call]), rank, call))
    return [*pieces, (run.start, until, rank, NONE)]
