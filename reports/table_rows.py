"""The rows of a table."""

from typing import Any

import pandas as pd


def rows_of(frame: pd.DataFrame) -> list[Any]:
    """Return the rows as named tuples, whose fields are the columns."""
    return list(frame.itertuples())
