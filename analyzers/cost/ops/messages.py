"""The message of a collective, recorded on the op that calls it."""

import json
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal, get_args

from tracekit.analyzers.core import GPUS_OF_A_HOST
from tracekit.analyzers.cost.ops import tensors

Kind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", ""]


@dataclass(frozen=True)
class Message:
    """One call of a collective; values that the trace does not hold are "" or 0."""

    kind: Kind = ""
    bytes: int = 0
    """Bytes of the larger of a rank's send and receive buffers."""
    ranks: int = 0

    @property
    def carried(self) -> float:
        """Bytes that a rank's link must transfer in one direction with any algorithm; of a group of unknown size, those
        of the message."""
        if not self.ranks:
            return float(self.bytes)
        parts = {"all-reduce": 2 * (self.ranks - 1), "broadcast": self.ranks}.get(self.kind, self.ranks - 1)
        return self.bytes * parts / self.ranks

    @property
    def sized(self) -> bool:
        return bool(self.kind and self.bytes)

    @property
    def known(self) -> bool:
        """Whether its time can be modelled."""
        return self.sized and 1 < self.ranks <= GPUS_OF_A_HOST


@lru_cache(maxsize=1 << 12)
def message(values: str) -> Message:
    """Return the message from a call's recorded values: name, elements sent and received, type, ranks, ... Never
    raises."""
    try:
        name, sent, received, element, ranks, *_ = json.loads(values)
        dtype = tensors.find(element)
        return Message(kind_of(name), max(int(sent), int(received)) * (dtype.bytes if dtype else 0), int(ranks))
    except (ValueError, TypeError, AttributeError):
        return Message()


@lru_cache(maxsize=1 << 12)
def message_by_inputs(name: str, shapes: str, element_types: str) -> Message:
    """Return the message of an op or range of torch, such as c10d::_allgather_base_ or nccl:all_reduce, by its inputs.

    Versions before 2.3 do not record the number of ranks. Never raises.
    """
    try:
        inputs = zip(json.loads(shapes), json.loads(element_types), strict=True)
        sizes = [prod(shape) * dtype.bytes for shape, element in inputs if (dtype := tensors.find(element)) and shape]
        return Message(kind_of(name.rpartition(":")[2]), max(sizes, default=0))
    except (ValueError, TypeError):
        return Message()


def kind_of(name: str) -> Kind:
    """Return the kind for c10d's names, such as allreduce_coalesced, _allgather_base or reduce_scatter_tensor."""
    plain = name.replace("_", "")
    return next((kind for kind in get_args(Kind) if kind and plain.startswith(kind.replace("-", ""))), "")
