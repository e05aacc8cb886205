"""The bandwidth of collectives, by the formulas of nccl-tests, relative to that of the link."""

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.hosts import GPUS_OF_A_HOST

Floats = npt.NDArray[np.float64]


def bus_factor(kind: npt.NDArray, size: npt.NDArray) -> Floats:
    """Return the bytes that a link carries in one direction for each byte of the message, among `size` ranks."""
    size = size.astype(np.float64)
    rest = (size - 1) / np.maximum(size, 1)
    return np.select(
        [kind == "all-reduce", np.isin(kind, ["all-gather", "reduce-scatter", "all-to-all"])], [2 * rest, rest], 1.0
    )


def link_bytes(gpu: GPU | None, ranks: int, hosts: int) -> float:
    """Return the bytes per second of a rank's link in one direction, inside one host; NaN for an unknown link."""
    if gpu is None or hosts != 1 or ranks > GPUS_OF_A_HOST:
        return float("nan")
    return (gpu.nvlink_gbs / 2 if gpu.nvlink_gbs else gpu.pcie_gbs) * 1e9
