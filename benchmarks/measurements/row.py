"""One measured kernel, or the few kernels of one op call."""

from dataclasses import dataclass
from typing import Literal

from tracekit.analyzers.cost import GPU, Cost

Source = Literal["own", "aiconfigurator", "neusight"]


@dataclass(frozen=True)
class Row:
    source: Source
    family: str
    """Class of op for which errors are stated."""
    label: str
    """Name of the measured op in its source."""
    gpu: GPU
    cost: Cost
    nanoseconds: float
