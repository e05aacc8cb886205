"""Finds when devices were idle in a step: between two pieces of work, before the first, and after the last."""

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]

_COLUMNS = ("start_ns", "end_ns", "device", "step", "work", "edge")


def idle_spans(work: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the idle spans, ordered by device and time. Those of a device do not overlap.

    Columns are start_ns, end_ns, device, step, work (row of the work that ends the span; -1 for the end of the step)
    and edge (whether it is before a step's first work or after its last).
    """
    between = np.flatnonzero(((work["gap_ns"] > 0) & (work["device"] >= 0)).to_numpy())
    end = work["start_ns"].to_numpy()[between].astype(np.int64)
    gaps = pd.DataFrame(
        {
            "start_ns": end - work["gap_ns"].to_numpy()[between],
            "end_ns": end,
            "device": work["device"].to_numpy()[between],
            "step": work["step"].to_numpy()[between],
            "work": between,
            "edge": False,
        }
    )
    on_devices = work[(work["device"] >= 0).to_numpy()]
    edges = [_edges(rows, steps) for _, rows in on_devices.groupby("device", sort=True)]
    parts = [each for each in (gaps, *edges) if len(each)]
    spans = pd.concat(parts, ignore_index=True) if parts else gaps
    return spans.sort_values(["device", "start_ns"], kind="stable", ignore_index=True)


def _edges(work: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the idle spans of one device between each step's start and first work, and its last work and end."""
    start = work["start_ns"].to_numpy().astype(np.int64)
    latest = np.maximum.accumulate(start + work["duration_ns"].to_numpy())
    inside = work.assign(place=np.arange(len(work)))[(work["step"] >= 0).to_numpy()]
    first = inside.groupby("step")["place"].min()
    begin, stop = (steps["start_ns"].to_numpy()[first.index], _ends(steps)[first.index])
    place = first.to_numpy()
    before = np.where(place > 0, latest[place - 1], np.iinfo(np.int64).min)
    last = np.searchsorted(start, stop, "left") - 1
    lead = _spans(np.maximum(begin, before), start[place], first.index, work.index.to_numpy()[place])
    tail = _spans(latest[last], stop, first.index, np.full(len(last), -1))
    both = pd.concat([lead, tail], ignore_index=True).assign(device=work["device"].iloc[0], edge=True)
    return both[both["end_ns"] > both["start_ns"]][list(_COLUMNS)]


def _ends(steps: pd.DataFrame) -> Ints:
    return (steps["start_ns"] + steps["wall_ns"]).to_numpy().astype(np.int64)


def _spans(start: Ints, end: Ints, step: "pd.Index[int]", work: Ints) -> pd.DataFrame:
    return pd.DataFrame({"start_ns": start, "end_ns": end, "step": step.to_numpy(), "work": work})
