"""Whether a step replays CUDA graphs, or asks for them and runs without."""

import re
from dataclasses import dataclass

import pandas as pd

from tracekit.analyzers.attribution.kernel_names import matching

_ASKS = re.compile(r"cudagraphify|torch/_inductor/cudagraph_trees\.py")
_REPLAYS = re.compile(r"GraphLaunch", re.IGNORECASE)
_RECORDS = re.compile(r"StreamBeginCapture|GraphInstantiate", re.IGNORECASE)


@dataclass(frozen=True)
class GraphUse:
    """Host rows of a step that have to do with CUDA graphs."""

    asked: int = 0
    """Ranges and frames of torch.compile's CUDA graphs."""
    replayed: int = 0
    """Graphs that were launched."""
    recorded: int = 0
    """Captures begun."""

    @property
    def falls_back(self) -> bool:
        """Graphs are asked for, or recorded again, and none is replayed."""
        return bool(self.asked or self.recorded) and not self.replayed


def graph_use(host: pd.DataFrame) -> GraphUse:
    """That of a step, from its host rows."""
    runtime = (host["category"] == "runtime").to_numpy()
    asked = matching(host["name"], _ASKS) & ~runtime
    replayed, recorded = (matching(host["name"], pattern) & runtime for pattern in (_REPLAYS, _RECORDS))
    return GraphUse(int(asked.sum()), int(replayed.sum()), int(recorded.sum()))
