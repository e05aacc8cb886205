"""Our own collectives on H200s: benchmarks/data/h200_collectives.csv, made by measure_collectives.py."""

from pathlib import Path

import pandas as pd

from tracekit.analyzers.cost import Message
from tracekit.analyzers.cost.time.links import Between

FILE = Path(__file__).parents[1] / "data" / "h200_collectives.csv"
BETWEEN: dict[str, Between] = {"direct": "nvlink", "no-p2p": "host"}
TOLD_FROM = 1 << 20
"""Bytes from which a call takes longer than the host needs to issue it."""
_ISSUED_TO = 1 << 16


def table() -> pd.DataFrame:
    """The file's rows: machine, link, collective, ranks, bytes (of a rank's largest buffer), us (of a call)."""
    return pd.read_csv(FILE)


def collectives() -> pd.DataFrame:
    """Collectives between ranks, with `between` and `message`."""
    rows = table()
    rows = rows[rows["collective"] != "copy"]
    calls = zip(rows["collective"], rows["bytes"], rows["ranks"], strict=True)
    messages = pd.Series([Message(*call) for call in calls], index=rows.index, dtype=object)
    return rows.assign(between=rows["link"].map(BETWEEN), message=messages)


def copies() -> pd.DataFrame:
    """Return copies between GPUs that take longer than the host needs to issue them: bytes and us."""
    rows = table()
    return rows[(rows["collective"] == "copy") & (rows["bytes"] >= 4 * TOLD_FROM)]


def issue_us(rows: pd.DataFrame) -> float:
    """Return the host time of a call, estimated from the shortest messages."""
    return float(rows["us"][rows["bytes"] <= _ISSUED_TO].median())
