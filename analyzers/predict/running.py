"""Features that a run already uses according to its trace: CUDA graphs, generated code, training, unaligned
GEMMs."""

import re

import msgspec
import pandas as pd

from tracekit.analyzers.attribute import matching
from tracekit.analyzers.cost import Append, Attention, Product, Work
from tracekit.analyzers.predict.op_columns import OpList

GENERATED = "triton_"
COMPILED_REGION = "Torch-Compiled Region"
_UNALIGNED = re.compile(r"(?:_|\b)align[12](?:\D|$)")
"""Alignment of 1 or 2 elements per load in a CUTLASS kernel's name. Tensor cores need 8 in 16-bit types."""
_MOSTLY = 0.5
_TRAINS = re.compile(r"backward|_foreach_(?:addcdiv|lerp|addcmul|mul)_|_fused_(?:adam|sgd|adagrad)", re.IGNORECASE)
_PHASES = frozenset({"backward", "optimizer"})


class Running(msgspec.Struct, frozen=True):
    """Facts about the run that its op list does not hold."""

    graph_launches: int = 0
    """Number of graph launches per step."""
    graphed: float = 0.0
    """Fraction of the kernel time in graph replays."""
    compiled: bool = False
    """Whether the work includes regions of torch.compile or kernels that it generated."""
    unaligned: float | None = None
    """Fraction of the kernel time in GEMMs whose kernels load one or two elements at a time, by their names; None:
    unknown."""

    @property
    def is_graphed(self) -> bool:
        """Whether graphs replay most of the step."""
        return self.graphed > _MOSTLY


NOTHING_KNOWN = Running()


def running(work: pd.DataFrame, steps: int, *, measured: bool) -> Running:
    """Return the facts about `steps` steps of work (WORK). `measured`: kernels have their real names."""
    busy = work["duration_ns"].to_numpy(dtype=float)
    total, in_graph = max(busy.sum(), 1.0), (work["graph"] >= 0).to_numpy()
    names = work["name"].astype("category")
    categories = [str(name) for name in names.cat.categories]
    codes = names.cat.codes.to_numpy()
    generated = [name.startswith(GENERATED) for name in categories]
    unaligned = pd.Series([_UNALIGNED.search(name) is not None for name in categories], dtype=bool).to_numpy()
    regions = work["op_name"].astype("category").cat.categories
    return Running(
        graph_launches=round(work["launch"][in_graph].nunique() / max(1, steps)),
        graphed=float(busy[in_graph].sum() / total),
        compiled=any(generated) or any(str(name).startswith(COMPILED_REGION) for name in regions),
        unaligned=float(busy[unaligned[codes]].sum() / total) if measured else None,
    )


def trains(ops: OpList) -> bool:
    """Whether an op list holds a backward pass or an optimizer's step."""
    if not _PHASES.isdisjoint(ops.phase):
        return True
    return any(_TRAINS.search(str(name)) for name in set(ops.name))


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


def with_decoding(ops: OpList) -> OpList:
    """Return the op list (OP_LIST) with the phase "decode" if no phase is marked and all attention has one query."""
    if (ops.phase != "").any() or not _decodes([cost.work for cost in ops.cost if cost is not None]):
        return ops
    return ops.assign(phase="decode")


def _decodes(works: list[Work | None]) -> bool:
    """Return whether the works are unfused decode attention: a GEMM of one row per head, after a token is appended
    to the keys."""
    fused = [work for work in works if isinstance(work, Attention)]
    if fused:
        return all(work.queries == 1 < work.keys for work in fused)
    return any(isinstance(work, Append) and work.added == 1 for work in works) and any(map(_has_one_query, works))


def _has_one_query(work: Work | None) -> bool:
    return isinstance(work, Product) and not work.weight and work.m == 1 < work.groups
