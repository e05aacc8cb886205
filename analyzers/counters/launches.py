"""The launches of a report in order, with their metrics in base units, whichever page they come from."""

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Launches:
    """One row a launch in both frames."""

    identity: pd.DataFrame
    """Text columns IDENTITY; "" where not reported."""
    metrics: pd.DataFrame
    """float64 columns by the tool's own names of metrics, in seconds, bytes, hz, percent; NaN: not reported."""
    unreadable: int = 0
    """Lines that could not be read."""
    cut: bool = False
    """The last launch is incomplete."""


NAME, GRID, BLOCK, DEVICE, STREAM, CAPABILITY = "Kernel Name", "Grid Size", "Block Size", "Device", "Stream", "CC"
DEVICE_NAME = "device__attribute_display_name"
IDENTITY = (NAME, GRID, BLOCK, DEVICE, STREAM, CAPABILITY, DEVICE_NAME)
