"""Defines the launches of a report with their metrics in base units, independent of the page that they come from."""

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Launches:
    """The launches of a report, in order. Both frames have one row per launch."""

    identity: pd.DataFrame
    """Text columns IDENTITY; "" if not reported."""
    metrics: pd.DataFrame
    """float64 columns with the tool's names of metrics, in seconds, bytes, hz or percent; NaN if not reported."""
    unreadable: int = 0
    """Number of lines that could not be read."""
    cut: bool = False
    """Whether the last launch is incomplete."""


NAME, GRID, BLOCK, DEVICE, STREAM, CAPABILITY = "Kernel Name", "Grid Size", "Block Size", "Device", "Stream", "CC"
DEVICE_NAME = "device__attribute_display_name"
IDENTITY = (NAME, GRID, BLOCK, DEVICE, STREAM, CAPABILITY, DEVICE_NAME)
