"""Selects the host events that the counters count."""

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.kernel_names import is_launch, matching
from tracekit.analyzers.attribution.nesting import Nest
from tracekit.analyzers.breakdown.host_kinds import synchronises

Bools = npt.NDArray[np.bool_]

_MOVES = re.compile(r"memcpy|memset|memprefetch|urEnqueue|zeCommandListAppendMemory", re.IGNORECASE)
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")
_ALLOCATES = re.compile(r"^(?:cuda|hip)(?:Malloc|HostAlloc)|^(?:cu|hip)Mem(?:Alloc|HostAlloc|Create)")
_SCALAR = re.compile(r"^aten::_local_scalar_dense$")
_REGION = re.compile(r"^Torch-Compiled Region: ")
_COMPILES = re.compile(r"^entire_frame_compile|_compile\.compile_inner \(dynamo_timed\)$")


def host_events(host: pd.DataFrame, *, on_device: bool) -> dict[str, Bools]:
    """Return a mask of the host table for each counter of host rows. Without a device, device calls are not counted."""
    names = host["name"]
    runtime, op = ((host["category"] == kind).to_numpy() for kind in ("runtime", "op"))
    regions = matching(names, _REGION)
    counted = {
        "scalar-reads": op & matching(names, _SCALAR),
        "compiled-regions": regions,
        "graph-breaks": _nested(host, regions),
        "compilations": matching(names, _COMPILES),
    }
    if not on_device:
        return counted
    return counted | {
        "launches": runtime & is_launch(names) & ~matching(names, _MOVES),
        "graph-launches": runtime & matching(names, _GRAPH_LAUNCH),
        "synchronisations": synchronises(host),
        "allocations": runtime & matching(names, _ALLOCATES),
    }


def _nested(host: pd.DataFrame, mask: Bools) -> Bools:
    """Select the rows of the mask that lie inside another row of it."""
    return mask & (Nest(host, mask).parents() >= 0) if mask.any() else mask
