"""The share of the GPU's busy time of each layer of a run, layers of a list together."""

import re

import pandas as pd

from tracekit.analyzers.results import Analysis

_INDEX = re.compile(r"(?<![^./])\d+(?![^./])")
COLUMNS = ("run", "layer", "busy_us", "share")


def shares(run: str, analysis: Analysis, steps: int) -> pd.DataFrame:
    """Return a row for each layer: its time in a step, and its share, its children included."""
    layers = analysis.layers
    names = layers["path"].str.replace(_INDEX, "*", regex=True)
    summed = layers.groupby(names, sort=False)[["busy_ns", "self_busy_ns"]].sum()
    whole = summed["self_busy_ns"].sum()
    return pd.DataFrame(
        {
            "run": run,
            "layer": summed.index,
            "busy_us": (summed["busy_ns"] / 1e3 / steps).round(3),
            "share": (summed["busy_ns"] / whole).round(5),
        }
    )
