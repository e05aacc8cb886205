"""GPUs by name: what their data sheets promise and what they sustain."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class GPU:
    """One row of gpus.toml. Rates are dense, never sparse."""

    id: str
    name: str
    vendor: str
    """nvidia or amd."""
    architecture: str
    compute_capability: tuple[int, int]
    """(0, 0) for other vendors than NVIDIA."""
    sms: int
    clock_ghz: float
    memory_gb: float
    bandwidth_gbs: float
    l2_mb: float
    tdp_w: int
    pcie_gbs: float
    """One direction."""
    nvlink_gbs: float
    """All links, both directions; 0: none."""
    peaks_tflops: Mapping[str, float]
    """Precision -> TFLOP/s (TOP/s for integers); a precision that the GPU has no unit for is absent."""
    source: str
