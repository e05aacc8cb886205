"""Report what a trace lacks that analyses need, and shapes that are left out."""

import numpy as np
import pandas as pd

from tracekit.analyzers.problems import Problem, problem
from tracekit.analyzers.recorded_dims import is_impossible


def lacking(host: pd.DataFrame, device: pd.DataFrame) -> list[Problem]:
    """Return a problem for each kind of record that is missing from HOST or DEVICE."""
    shapes = host.loc[host["category"] == "op", "shapes"]
    launches = host.loc[(host["category"] == "runtime") & (host["correlation"] >= 0), "correlation"]
    return [
        problem("no-device-events", int(device.empty)),
        problem("no-host-events", int(host.empty)),
        problem("duplicate-correlations", int(launches.duplicated().sum())),
        problem("no-shapes", int(not shapes.empty and bool((shapes == "").all()))),
        impossible_shapes(host),
    ]


def impossible_shapes(host: pd.DataFrame) -> Problem:
    """Return a problem for rows with shapes that no tensor has. Analyses take them as unknown."""
    absurd = [is_impossible(str(text)) for text in host["shapes"].cat.categories]
    rows = np.append(absurd, False)[host["shapes"].cat.codes] if any(absurd) else np.empty(0)
    return problem("impossible-values", int(rows.sum()), ": shapes of more than a petabyte")
