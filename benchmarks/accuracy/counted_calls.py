"""Ops measured one by one under Nsight Compute (benchmarks/data/h200_counters.csv), beside their formulas."""

from pathlib import Path

import pandas as pd
from measurements.own import cost_of

from accuracy.chapter import table

FILE = Path(__file__).parents[1] / "data" / "h200_counters.csv"


def calls() -> str | None:
    """One line an op; None without the file."""
    if not FILE.is_file():
        return None
    lines = [line for row in pd.read_csv(FILE, keep_default_na=False).itertuples() if (line := _line(row))]
    return table(("op", "family", "FLOPs", "bytes read", "bytes written"), lines, 3)


def _line(row: object) -> tuple[str, ...] | None:
    label, op, inputs, elements = (getattr(row, name) for name in ("label", "op", "inputs", "elements"))
    cost = cost_of(label, op, inputs, elements)
    if cost is None:
        return None
    measured = (float(getattr(row, name) or "nan") for name in ("flops", "read_bytes", "write_bytes"))
    counted = (cost.flops, cost.read_bytes, cost.write_bytes)
    ratios = [f"{a / b:.2f}" if b else "" for a, b in zip(measured, counted, strict=True)]
    return f"`{op}` ({label})", cost.family, *ratios
