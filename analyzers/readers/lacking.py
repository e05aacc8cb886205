"""Report what a trace lacks that analyses need."""

import pandas as pd

from tracekit.analyzers.problems import Problem, problem


def lacking(host: pd.DataFrame, device: pd.DataFrame) -> list[Problem]:
    """Return a problem for each kind of record that is missing from HOST or DEVICE."""
    shapes = host.loc[host["category"] == "op", "shapes"]
    launches = host.loc[(host["category"] == "runtime") & (host["correlation"] >= 0), "correlation"]
    return [
        problem("no-device-events", int(device.empty)),
        problem("no-host-events", int(host.empty)),
        problem("duplicate-correlations", int(launches.duplicated().sum())),
        problem("no-shapes", int(not shapes.empty and bool((shapes == "").all()))),
    ]
