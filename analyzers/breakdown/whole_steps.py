"""Selects the steps whose wall time is that of a whole step."""

import pandas as pd

_CUT_OFF = 0.5
"""A last step with less than this fraction of the time of every other one was cut off."""


def whole_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of STEPS without a last one that is far shorter than every other.

    A step lasts until the next one begins. After the last one, the recording ends with its work, so that it lacks what
    the host does between steps.
    """
    wall = steps["wall_ns"].to_numpy()
    cut_off = len(wall) > 1 and wall[-1] < _CUT_OFF * wall[:-1].min()
    return steps[:-1] if cut_off else steps
