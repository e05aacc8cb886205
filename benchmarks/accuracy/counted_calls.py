"""Compares ops measured one by one under Nsight Compute (benchmarks/data/h200_counters.csv) with their formulas."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from measurements.own import cost_of

from accuracy.chapter import Target, at_most, table
from accuracy.counted_causes import cause
from tracekit.analyzers.cost import Product

FILE = Path(__file__).parents[1] / "data" / "h200_counters.csv"
_LARGE_BYTES = 1 << 20
_FULL_ROWS = 16
"""Number of rows from which the tiles of the tensor cores are full."""
_READ_LIMIT, _FLOPS_LIMIT = 0.1, 0.05


def calls() -> pd.DataFrame:
    """A row an op call: label, op, family, whether it is a product with full tiles, bytes read as counted, and measured
    over counted FLOPs, bytes read and bytes written, NaN where nothing is counted. Empty without the file."""
    if not FILE.is_file():
        return pd.DataFrame()
    return pd.DataFrame(_ratios(pd.read_csv(FILE, keep_default_na=False, dtype={"flops": str})))


def _ratios(measured: pd.DataFrame) -> Iterator[dict[str, object]]:
    for row in measured.to_dict("records"):
        cost = cost_of(row["label"], row["op"], row["inputs"], row["elements"])
        if cost is not None:
            yield {
                **{name: row[name] for name in ("label", "op")},
                "family": cost.family,
                "full_product": isinstance(cost.work, Product) and cost.work.m >= _FULL_ROWS,
                "counted_read_bytes": cost.read_bytes,
                "flops": _over(float(row["flops"] or "nan"), cost.flops),
                "read": _over(row["read_bytes"], cost.read_bytes),
                "written": _over(row["write_bytes"], cost.write_bytes),
            }


def _over(measured: float, counted: int) -> float:
    return measured / counted if counted else np.nan


def families(counted: pd.DataFrame) -> str:
    """Return one line per family with medians over the calls that read at least a megabyte."""
    groups = _large(counted).groupby("family")
    lines = [(name, len(of), *map(_text, of[["flops", "read", "written"]].median())) for name, of in groups]
    return table(("family", "calls", "FLOPs", "bytes read", "bytes written"), lines, 4)


def listing(counted: pd.DataFrame) -> str:
    """Return one line per call, with the reason for its error."""
    ratios = counted[["flops", "read", "written"]].map(_text)
    lines = [
        (f"`{op}` ({label})", *ratio, cause(label, op))
        for label, op, ratio in zip(counted["label"], counted["op"], ratios.to_numpy(), strict=True)
    ]
    head, *below = table(("op", "FLOPs", "bytes read", "bytes written", "why"), lines, 0).split("\n")
    return "\n".join((head, "| --- | ---: | ---: | ---: | --- |", *below[1:]))


def targets(counted: pd.DataFrame) -> tuple[Target, ...]:
    """Return the largest error of a family of ops, and that of GEMMs."""
    read = (_large(counted).groupby("family")["read"].median() - 1).abs()
    flops = (counted["flops"][counted["full_product"]] - 1).abs()
    worst = f"Counted bytes read, median call of the family furthest off ({read.idxmax()})"
    return (
        at_most(worst, _READ_LIMIT, float(read.max())),
        at_most("Counted FLOPs of GEMMs of 16 rows and more, furthest off", _FLOPS_LIMIT, float(flops.max())),
    )


def _large(counted: pd.DataFrame) -> pd.DataFrame:
    return counted[counted["counted_read_bytes"] >= _LARGE_BYTES]


def _text(ratio: float) -> str:
    return "" if np.isnan(ratio) else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
