"""Selects the work of steps, and the steps whose wall time is that of a whole step, and returns their usual time."""

import numpy as np
import numpy.typing as npt
import pandas as pd

_CUT_OFF = 0.5
"""A last step with less than this fraction of the time of every other one was cut off."""


def in_steps(work: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which rows of WORK are inside steps; all rows if no step contains any."""
    inside = (work["step"] >= 0).to_numpy()
    return inside if inside.any() else ~inside


def whole_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of STEPS without a last one that is far shorter than every other.

    A step lasts until the next one begins. After the last one, the recording ends with its work, so that it lacks what
    the host does between steps.
    """
    wall = steps["wall_ns"].to_numpy()
    cut_off = len(wall) > 1 and wall[-1] < _CUT_OFF * wall[:-1].min()
    return steps[:-1] if cut_off else steps


def usual_ns(steps: pd.DataFrame) -> float:
    """Return the median wall time of whole steps.

    Of an even number of steps that overlap, it is the shorter one in the middle: the first of them begins with an idle
    device, so that it takes longer than those behind it.
    """
    overlap = bool((steps["start_ns"] > steps["host_start_ns"]).any())
    return float(steps["wall_ns"].quantile(interpolation="lower" if overlap else "midpoint"))
