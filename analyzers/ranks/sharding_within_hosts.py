"""Factors on the transfers of FSDP if its weights are sharded within each host, and replicated over the hosts.

Gathers and scatters then stay inside a host; the shards of the gradients are reduced between hosts. Factors are ratios
of modelled times (prediction/data_parallel/links.py), because no trace contains both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.costs.messages import Message
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.prediction.data_parallel.links import ADAPTER_GBS, HOP_NS, SUSTAINED, message_ns

Floats = npt.NDArray[np.float64]
Shard = Literal["all-gather", "reduce-scatter"]
_SHARDS: tuple[Shard, ...] = get_args(Shard)


@dataclass(frozen=True)
class Spread:
    """The ranks of a group, and the number of hosts that they are on; 0: unknown."""

    ranks: int
    hosts: int

    @property
    def inside(self) -> int:
        """Ranks on each host; 0 if these are unequal, or the group is on one host."""
        return self.ranks // self.hosts if self.hosts > 1 and self.ranks % self.hosts == 0 else 0


def within_hosts(
    collectives: pd.DataFrame, kinds: Mapping[int, str], spreads: Mapping[int, Spread], gpu: GPU | None
) -> Floats | None:
    """Return the factors; None without a known GPU or an FSDP group over several hosts."""
    factors = np.ones(len(collectives))
    changed = False
    for kind in _SHARDS if gpu else ():
        of_kind = collectives[(collectives["kind"] == kind) & (collectives["bytes"] > 0)]
        for number, rows in of_kind.groupby("group"):
            spread = spreads[int(str(number))]
            if gpu and kinds.get(int(str(number))) == "fsdp" and spread.inside > 1:
                sizes, at = np.unique(rows["bytes"].to_numpy(), return_inverse=True)
                factors[rows.index] = np.array([_factor(kind, int(size), spread, gpu) for size in sizes])[at]
                changed = True
    return factors if changed else None


def _factor(kind: Shard, size: int, spread: Spread, gpu: GPU) -> float:
    now = message_ns(Message(kind, size, spread.ranks), gpu, "ib")
    within = message_ns(Message(kind, size, spread.inside), gpu, "nvlink")
    return (within + (_between(size / spread.inside, spread.hosts) if kind == "reduce-scatter" else 0.0)) / now


def _between(size: float, hosts: int) -> float:
    """Return the time of an all-reduce of a shard between hosts, in ns: each GPU has an adapter."""
    return 2 * (hosts - 1) / hosts * size / (ADAPTER_GBS * SUSTAINED) + 2 * np.ceil(np.log2(hosts)) * HOP_NS
