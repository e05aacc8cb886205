"""Predicts every row of a plan with tracekit, from the output of measure.py --trace-only.

    python -m benchmarks blind.predict PLAN TRACED OUT.csv

TRACED is the OUT folder of measure.py. Each row is predicted twice. `trace`: from the plain trace alone.
`capture`: from the trace with ranges, with the run's batch, length, dtype and its latency without a profiler, as
`tracekit profile` records them. What is refused is a row that says why.
"""

import argparse
import csv
import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec

import tracekit
from benchmarks.blind.plan import Run, read
from tracekit.analyzers.trace import CaptureInfo, Latency


@dataclass(frozen=True)
class Predicted:
    run: str
    optimization: str
    evidence: str
    """trace, capture, or beside."""
    low: float | None = None
    expected: float | None = None
    high: float | None = None
    """Speed-up of the work."""
    latency_us: float | None = None
    """The expected latency of a step after the optimization, in µs."""
    baseline_us: float | None = None
    """The latency of an unmodified step without a profiler, in µs, as the prediction states it."""
    refused: str = ""
    first_advice: str = ""
    """The first advice for the run."""
    plan: str = ""
    """The best plan for the run, its steps joined with "+"."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("traced", type=Path)
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    traced = json.loads((asked.traced / "traced.json").read_text(encoding="utf-8"))
    rows = list(_predictions(read(asked.plan).runs, traced, asked.traced / "traces"))
    write(rows, asked.out)
    refused = sum(bool(row.refused) for row in rows)
    print(f"{len(rows)} predictions, {refused} of them refused: {asked.out}")
    return 0


def _predictions(runs: tuple[Run, ...], traced: dict[str, Any], folder: Path) -> Iterator[Predicted]:
    with tempfile.TemporaryDirectory() as beside:
        for run in runs:
            row = traced["runs"].get(run.name, {}).get("run", {"error": "not traced"})
            if "error" in row:
                yield from _without(run, f"no trace: {row['error']}")
                continue
            with_ranges = folder / f"{run.name}.ranges.json.gz"
            yield from predicted(folder / f"{run.name}.json.gz", run, "trace")
            yield from predicted(stated(with_ranges, run, row, traced["machine"], Path(beside)), run, "capture")
            print(f"{run.name} {run.model}", file=sys.stderr)


def _without(run: Run, why: str) -> Iterator[Predicted]:
    for name in run.optimizations:
        yield from (Predicted(run.name, name, evidence, refused=why) for evidence in ("trace", "capture"))


def predicted(trace: Path, run: Run, evidence: str) -> Iterator[Predicted]:
    """Yield a prediction for each optimization of the run, from this trace."""
    first, plan = _advice(trace)
    for name in run.optimizations:
        yield replace(gain(trace, Predicted(run.name, name, evidence)), first_advice=first, plan=plan)


def gain(trace: Path, asked: Predicted) -> Predicted:
    """Return the row with the prediction for its optimization, or why it is refused."""
    try:
        prediction = tracekit.predict(trace, asked.optimization)
    except tracekit.TracekitError as why:
        return replace(asked, refused=" ".join((why.why or why.what).split()))
    speedup, step_us = prediction.speedup, prediction.latency_us.expected
    before_us = prediction.baseline.unprofiled_us
    ends = {"low": speedup.low, "expected": speedup.expected, "high": speedup.high}
    return replace(asked, **ends, latency_us=step_us, baseline_us=before_us)


def write(rows: list[Predicted], target: Path) -> None:
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Predicted)])
        writer.writeheader()
        writer.writerows(_rounded(row) for row in rows)


def _advice(trace: Path) -> tuple[str, str]:
    """Return the first recommendation, and the plan; "" if nothing is recommended."""
    try:
        analysis = tracekit.analyze(trace)
    except tracekit.TracekitError:
        return "", ""
    first = analysis.recommendations[0].id if analysis.recommendations else ""
    return first, "+".join(step.name for step in analysis.plan)


def _rounded(row: Predicted) -> dict[str, Any]:
    return {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in asdict(row).items()}


def stated(trace: Path, run: Run, row: dict[str, Any], machine: dict[str, Any], out: Path) -> Path:
    """Write the trace with the run's settings and its latency without a profiler into the folder `out`."""
    info = msgspec.to_builtins(_info(run, row, machine))
    held = json.loads(gzip.decompress(trace.read_bytes()))
    held.pop("tracekit", None)
    target = out / trace.name
    target.write_bytes(gzip.compress(json.dumps({"tracekit": info, **held}).encode(), compresslevel=1))
    return target


def _info(run: Run, row: dict[str, Any], machine: dict[str, Any]) -> CaptureInfo:
    took = _both(row)
    return CaptureInfo(
        version=tracekit.__version__,
        source="measured",
        device="cuda" if machine["gpu"] else "cpu",
        gpu="",
        device_name=machine["gpu"],
        driver=machine["driver"],
        versions={name: machine[name] for name in ("python", "torch", "transformers")},
        model=run.model,
        workload=run.workload,
        batch_size=run.batch,
        seq_len=run.length,
        dtype=run.dtype,
        attention=run.attention or "eager",
        weights="random",
        parameters=row["parameters"],
        weight_bytes=row["weight_bytes"],
        buffer_bytes=row["buffer_bytes"],
        steps=row["trace_with_ranges"]["steps"],
        latency=Latency(1e3 * took["median"], 1e3 * took["p10"], 1e3 * took["p90"], took["samples"]),
        peak_memory_bytes=row["peak_bytes"],
    )


def _both(row: dict[str, Any]) -> dict[str, Any]:
    """Return the latency of a step over both processes that timed it: the mean of the medians, and the widest ends."""
    first, again = row["step_ms"], row.get("again_ms", row["step_ms"])
    middle = (first["median"] * again["median"]) ** 0.5
    ends = {"p10": min(first["p10"], again["p10"]), "p90": max(first["p90"], again["p90"])}
    return {"median": middle, **ends, "samples": first["samples"] + again["samples"] * (again is not first)}


HOST_LOGS = (-1.4, -1.0, -0.7, -0.4, 0.4, 0.7, 1.0, 1.4)
"""Logarithms of their slowness, relative to the expected host."""


if __name__ == "__main__":
    sys.exit(main())
