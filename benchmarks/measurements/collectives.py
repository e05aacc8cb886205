"""Our own collectives on H200s: benchmarks/data/h200_collectives.csv, made by measure_collectives.py."""

from pathlib import Path

import pandas as pd

from tracekit.analyzers.costs.messages import Message
from tracekit.analyzers.kernel_time.collectives import Between

FILE = Path(__file__).parents[1] / "data" / "h200_collectives.csv"
BETWEEN: dict[str, Between] = {"direct": "nvlink", "no-p2p": "host"}
TOLD_FROM = 1 << 20
"""Bytes from which on a call takes longer than its issue by the host."""
_ISSUED_TO = 1 << 16


def table() -> pd.DataFrame:
    """The file's rows: machine, link, collective, ranks, bytes (of a rank's largest buffer), us (of a call)."""
    return pd.read_csv(FILE)


def collectives() -> pd.DataFrame:
    """Those between ranks, with `between` and `message`."""
    found = table()
    found = found[found["collective"] != "copy"]
    calls = zip(found["collective"], found["bytes"], found["ranks"], strict=True)
    messages = pd.Series([Message(*call) for call in calls], index=found.index, dtype=object)
    return found.assign(between=found["link"].map(BETWEEN), message=messages)


def copies() -> pd.DataFrame:
    """Copies from one GPU to another that take longer than their issue: bytes and us."""
    found = table()
    return found[(found["collective"] == "copy") & (found["bytes"] >= 4 * TOLD_FROM)]


def issue_us(rows: pd.DataFrame) -> float:
    """Return the host time of a call, estimated from the shortest messages."""
    return float(rows["us"][rows["bytes"] <= _ISSUED_TO].median())
