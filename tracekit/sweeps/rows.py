"""The rows of a sweep's table, of modelled and of measured points."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tracekit.analyzers.sweep_table import NUMBERS, SWEEP
from tracekit.capture.settings import Settings

Row = dict[str, Any]


def refused_row(settings: Settings, name: str, source: str, why: str) -> Row:
    """Return the row of a point without numbers."""
    return {
        "gpu": settings.gpu or settings.device,
        "batch_size": settings.batch_size,
        "seq_len": settings.seq_len,
        "apply": name,
        "source": source,
        "refused": why,
        "largest_batch": -1,
        "fits": False,
        **dict.fromkeys(NUMBERS, float("nan")),
    }


def table(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the rows as the table SWEEP."""
    return SWEEP.frame({column.name: [row[column.name] for row in rows] for column in SWEEP.columns})
