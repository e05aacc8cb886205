"""The JSON and the CSV tables of a comparison, for other programs."""

from typing import Any

import pandas as pd

from tracekit.analyzers.compare import Comparison, Side
from tracekit.reports.compare.explanation import explained
from tracekit.reports.words import csv_table, fields, json_text, number, plain_rows, public

SCHEMA_VERSION = "1.0"
TABLES = ("difference", "layers", "ops", "kernels")
_NAMES = ("a_name", "b_name", "a_path", "b_path", "a_precision", "b_precision")


def to_dict(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain Python values: both sides, the speed-up, the sentence, and the tables.

    The speed-up is the latency of A divided by that of B. Times are in microseconds.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "speedup": number(comparison.speedup, 4),
        "change_us": number(comparison.change_ns / 1e3, 3),
        "within_spread": comparison.within_spread,
        "explanation": explained(comparison),
        "notes": list(comparison.notes),
        **{table: _rows(getattr(comparison, table)) for table in TABLES},
    }


def to_json(comparison: Comparison) -> str:
    """Return `to_dict` as JSON text."""
    return json_text(to_dict(comparison))


def to_csv(comparison: Comparison, table: str = "difference") -> str:
    """Return one of `TABLES` as CSV with a header row. Times are in microseconds; unknown values are empty."""
    return csv_table(public(getattr(comparison, table)))


def _side(side: Side) -> dict[str, Any]:
    source, spread = side.source, side.spread_ns
    return {
        "name": side.name,
        **fields(source, "kind device device_name?"),
        "gpu": source.gpu.id if source.gpu else None,
        **fields(source, "precision?"),
        **fields(side, "steps latency_ns latency_from"),
        "latency_p10_us": number(spread[0] / 1e3, 3) if spread else None,
        "latency_p90_us": number(spread[1] / 1e3, 3) if spread else None,
        **fields(side, "busy_ns kernels:3 flops:0 graph_share:6"),
    }


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows for JSON; a name is None on a side without a counterpart."""
    rows = plain_rows(public(frame))
    return [{key: None if key in _NAMES and value == "" else value for key, value in row.items()} for row in rows]
