"""Attributes a change of a time or of a counter to a layer, an op and a cause."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd

from tracekit.analyzers.comparison.comparison import Comparison
from tracekit.analyzers.comparison.mean_step import StepSummary
from tracekit.analyzers.counting.count_tables import FAMILY

NOWHERE = ""
NUMBER = re.compile(r"\.\d+(?=\.|$)")
_MOST_OF_IT = 0.8
"""A layer is named alone if it has at least this fraction of the growth of similar layers."""
_COLUMN = {"flops": "flops", "bytes": "bytes", "kernels": "kernels", "launches": "kernels", "ops": "kernels"}


def layer_and_op(
    before: StepSummary, after: StepSummary, column: str = "ns", layer: str | None = None
) -> tuple[str, str]:
    """Return path and op of the work whose `column` grew most; only work of `layer`, if it is given.

    If layers that differ in a number grew alike, the number becomes *: transformer.h.*.attn. Both are "" if nothing
    grew.
    """
    grown = _by_place(after, column).sub(_by_place(before, column), fill_value=0.0)
    path = grown.index.get_level_values("path").to_numpy(dtype=object)
    pattern = np.array([NUMBER.sub(".*", each) for each in path], dtype=object)
    if layer is None:
        by_pattern = grown.groupby(pattern).sum()
        if by_pattern.empty or not by_pattern.max() > 0:
            return NOWHERE, NOWHERE
        chosen = str(by_pattern.idxmax())
        by_layer = grown[pattern == chosen].groupby("path").sum()
        layer = str(by_layer.idxmax()) if by_layer.max() >= _MOST_OF_IT * by_layer.clip(lower=0).sum() else chosen
    ops = grown[(path == layer) | (pattern == layer)].groupby("op").sum()
    return layer, str(ops.idxmax()) if len(ops) and ops.max() > 0 else NOWHERE


def of_main_part(comparison: Comparison, before: StepSummary, after: StepSummary) -> tuple[str, str]:
    """Return layer and op behind a longer step: by time or, if the device waits longer, by launches."""
    grown = comparison.difference.groupby("kind")["change_ns"].sum()
    idle = grown.get("idle", 0.0) > grown.get("busy", 0.0) + grown.get("overlap", 0.0)
    return layer_and_op(before, after, "kernels" if idle else "ns")


def behind_counter(name: str, before: StepSummary, after: StepSummary) -> tuple[str, str]:
    """Return layer and op of the work that made a counter grow; "" if the counter does not count work."""
    if name.startswith(FAMILY):
        family = name.removeprefix(FAMILY)
        return layer_and_op(_of_family(before, family), _of_family(after, family), "kernels")
    return layer_and_op(before, after, _COLUMN[name]) if name in _COLUMN else (NOWHERE, NOWHERE)


def new_place(name: str, before: pd.DataFrame, after: pd.DataFrame) -> tuple[str, str, str]:
    """Return layer, function and location of the place (PLACES) at which a counter grew most; "" if it grew nowhere."""
    keys = ["layer", "function"]
    sides = [places[places["counter"] == name] for places in (before, after)]
    counts = [side.groupby(keys)["count"].sum() for side in sides]
    grown = counts[1].sub(counts[0], fill_value=0.0)
    if grown.empty or not grown.max() > 0:
        return NOWHERE, NOWHERE, NOWHERE
    layer, function = map(str, grown.index[int(grown.to_numpy().argmax())])
    there = sides[1][(sides[1]["layer"] == layer) & (sides[1]["function"] == function)]
    return layer, function, str(there.sort_values("count")["location"].iat[-1])


def _by_place(step: StepSummary, column: str) -> pd.Series:
    paths = np.append(step.layers["path"].to_numpy(dtype=object), NOWHERE)
    rows = step.work["layer"].to_numpy()
    path = paths[np.where((rows >= 0) & (rows < len(step.layers)), rows, len(step.layers))]
    work = pd.DataFrame({"path": path, "op": step.work["op"].to_numpy(), "value": step.work[column].to_numpy()})
    return work.groupby(["path", "op"])["value"].sum()


def _of_family(step: StepSummary, family: str) -> StepSummary:
    return replace(step, work=step.work[step.work["family"] == family])
