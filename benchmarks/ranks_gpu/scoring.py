"""How right tracekit was about the jobs of one machine: rows from the files in a folder such as h200-x2.

planted.json and one.json, many.json or measured.json hold what was planted and measured, verdicts_HOW.json and
predicted_HOW.json what was said, where HOW is blind or seen.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

PLANTED = "planted.json"
MEASURED = ("one.json", "many.json", "measured.json")
"""The first two are those of the first three rounds."""
CAUSES = {"more-work": "more work", "slow-loader": "data loading", "busy-gpu": "slower device"}
Row = dict[str, Any]


def verdicts(folder: Path, how: str) -> list[Row]:
    """Return, for each recorded job, what was planted and what was said: (rank, cause), and whether it was right."""
    planted, said = _read(folder / PLANTED)["jobs"], _read(folder / f"verdicts_{how}.json")
    rows = []
    for job, fault in planted.items():
        if job in said:
            true = [] if fault["fault"] == "healthy" else [(fault["rank"], CAUSES[fault["fault"]])]
            named = [(each["rank"], each["cause"]) for each in said[job]["named"]]
            costs = [each["cost"] for each in said[job]["named"]]
            rows.append({"job": job, "planted": true, "said": named, "costs": costs, "right": named == true})
    return rows


def scalings(folder: Path, how: str) -> list[Row]:
    """Return the throughput of a GPU that training keeps on several: measured (medians of steps), predicted."""
    times = _measured(folder, "times")
    alone = {row["workload"]: row["median_ms"] for row in times if row["ranks"] == 1}
    together = {(row["workload"], row["ranks"]): row["median_ms"] for row in times if row["ranks"] > 1}
    rows = []
    for each in _read(folder / f"predicted_{how}.json"):
        name, ranks, took = each["workload"], each["ranks"], each["latency_us"]
        if (name, ranks) in together:
            low, expected, high = (min(1.0, each["one_us"] / took[bound]) for bound in ("high", "expected", "low"))
            true = alone[name] / together[name, ranks]
            rows.append({"workload": name, "ranks": ranks, "measured": true, "predicted": expected})
            rows[-1] |= {"low": low, "high": high, "one_ms": alone[name]}
    return rows


def bandwidths(folder: Path, how: str) -> list[Row]:
    """Return rates on the bus by the traces beside NCCL's own timing at that size, or between its sizes, in GB/s.

    `beside`: it runs beside computation or copies.
    """
    sweep, rows = _measured(folder, "sweep"), []
    for job, said in _read(folder / f"verdicts_{how}.json").items():
        for name in ("bus_gbs", "beside_gbs"):
            for kind, size, rate, calls in said.get(name, []):
                true = _rate(sweep, kind, size)
                if true is not None:
                    row = {"job": job, "kind": kind, "bytes": size, "traced": rate, "nccl": true, "calls": calls}
                    rows.append({**row, "beside": name == "beside_gbs"})
    return rows


def _rate(sweep: list[Row], kind: str, size: int) -> float | None:
    known = sorted((row["bytes"], row["bus_gbs"]) for row in sweep if row["kind"] == kind)
    if not known or not known[0][0] <= size <= known[-1][0]:
        return None
    sizes, rates = zip(*known, strict=True)
    return float(np.exp(np.interp(np.log(size), np.log(sizes), np.log(rates))))


def _measured(folder: Path, name: str) -> list[Row]:
    files = (folder / each for each in MEASURED)
    return [row for file in files if file.exists() for row in _read(file).get(name, [])]


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
