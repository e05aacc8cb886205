"""One measured kernel, or the few kernels of one op call."""

from dataclasses import dataclass
from typing import Literal

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.hardware import GPU

Source = Literal["own", "aiconfigurator", "neusight"]


@dataclass(frozen=True)
class Row:
    source: Source
    family: str
    """The class of op that errors are given for."""
    label: str
    """The measured op, as its source names it."""
    gpu: GPU
    cost: Cost
    nanoseconds: float
