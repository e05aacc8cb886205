"""The rows of a table."""

from typing import Any

import pandas as pd


def rows_of(frame: pd.DataFrame) -> list[Any]:
    """Its rows, whose fields are its columns."""
    return list(frame.itertuples())
