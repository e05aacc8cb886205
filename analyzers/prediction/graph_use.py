"""Recognizes whether a step replays CUDA graphs, or requests them without replaying any."""

import re

import msgspec
import pandas as pd

from tracekit.analyzers.attribution.kernel_names import matching

_ASKS = re.compile(r"cudagraphify|torch/_inductor/cudagraph_trees\.py")
_REPLAYS = re.compile(r"GraphLaunch", re.IGNORECASE)
_RECORDS = re.compile(r"StreamBeginCapture|GraphInstantiate", re.IGNORECASE)


class GraphUse(msgspec.Struct, frozen=True):
    """Counts of host rows of a step that belong to CUDA graphs."""

    requested: int = 0
    """Number of ranges and frames of torch.compile's CUDA graphs."""
    replayed: int = 0
    """Number of graph launches."""
    recorded: int = 0
    """Number of captures that began."""

    @property
    def falls_back(self) -> bool:
        """Whether graphs are requested but never replayed, or recorded for at most one replay each."""
        return bool(self.requested and not self.replayed) or bool(self.recorded and self.replayed <= self.recorded)


def graph_use(host: pd.DataFrame) -> GraphUse:
    """Return the use of CUDA graphs in a step, from its host rows."""
    runtime = (host["category"] == "runtime").to_numpy()
    requested = matching(host["name"], _ASKS) & ~runtime
    replayed, recorded = (matching(host["name"], pattern) & runtime for pattern in (_REPLAYS, _RECORDS))
    return GraphUse(int(requested.sum()), int(replayed.sum()), int(recorded.sum()))
