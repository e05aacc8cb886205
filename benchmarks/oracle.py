"""Stores the answers of HolisticTraceAnalysis (traceinsight) about the sample traces for the tests.

    python3 -m venv venv-hta && venv-hta/bin/pip install traceinsight -e .
    python -m benchmarks oracle [FOLDER ...]

Writes tests/analyzers/oracle.json from every trace of the folders (default: examples/traces and the shared traces).
"""

import json
import logging
import os
import sys
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tracekit.analyzers import analyze
from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.trace import load

ROOT = Path(__file__).parents[1]
ORACLE = ROOT / "tests" / "analyzers" / "oracle.json"
FOLDERS = (ROOT / "examples/traces", ROOT.parent / "shared/traces", ROOT.parent / "shared/traces/ranks")


def oracle(path: Path) -> dict:
    """Return times in microseconds and the overlap in percent of the communication, or the error."""
    from hta.trace_analysis import TraceAnalysis

    try:
        analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir="/", include_last_profiler_step=True)
        times = analysis.get_temporal_breakdown(visualize=False).iloc[0]
        overlap = float(analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0])
    except (IndexError, KeyError, TypeError, ValueError, AssertionError) as error:
        return {"error": type(error).__name__}
    names = {"span": "kernel_time", "idle": "idle_time", "compute": "compute_time", "other": "non_compute_time"}
    row = {f"{name}_us": round(float(times[f"{column}(us)"]), 3) for name, column in names.items()}
    return row | {"overlap_percent": overlap if overlap == overlap else None}


def ours(path: Path) -> dict:
    """Return tracekit's answers in the same form."""
    timeline = analyze(load(path)).timeline
    device = timeline.device
    if device is None:
        return {"error": "no device work"}
    hidden = device.communication_ns - device.exposed_communication_ns
    return {
        "span_us": device.span_ns / 1e3,
        "idle_us": (device.span_ns - timeline.busy_ns) / 1e3,
        "compute_us": device.compute_ns / 1e3,
        "other_us": (timeline.busy_ns - device.compute_ns) / 1e3,
        "overlap_percent": round(100 * hidden / device.communication_ns, 2) if device.communication_ns else None,
    }


def main() -> int:
    if not find_spec("hta"):
        print("traceinsight is not installed; nothing is compared.", file=sys.stderr)
        return 0
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    folders = [Path(name).resolve() for name in sys.argv[1:]] or [folder for folder in FOLDERS if folder.is_dir()]
    traces = {}
    for path in (path for folder in folders for path in sorted(folder.glob("*.json.gz"))):
        traces[path.name] = oracle(path)
        try:
            print(path.name, "", f"  oracle   {traces[path.name]}", f"  tracekit {ours(path)}", sep="\n")
        except TracekitError as error:
            print(path.name, error)
    stored = {"traceinsight": version("traceinsight"), "traces": traces}
    ORACLE.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
