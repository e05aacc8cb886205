"""Records and times the runs of a plan. Needs PyTorch and transformers, and nothing of tracekit.

    python -m benchmarks blind.measure PLAN OUT --trace-only    # first: OUT/traces, OUT/traced.json
    python -m benchmarks blind.measure PLAN OUT --measure       # after predictions are committed: OUT/measured.json

`--piece 2/3` does the second of three parts of the plan, each of about as much time; plan.py joins what they leave.

`--trace-only` records each run as it is, twice: plainly, and with ranges around its modules (RUN.ranges.json.gz), and
times it without a profiler, in its process and, after all runs, in one more: a host's speed changes between processes
and between minutes. `--measure` applies each optimization by plain PyTorch and times it in turn with the run as
it is. Each run has a separate process, and each row a time limit; what fails is a row that says why. Compiled rows
are compiled side by side beforehand, so that what is timed finds them in the caches.
"""

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import transformers

from benchmarks.blind.draw import is_compiled
from benchmarks.blind.jobs import Device, measured, timed_again, traced, warmed
from benchmarks.blind.models import class_of, models
from benchmarks.blind.plan import Plan, Run, in_pieces, read
from benchmarks.blind.timing import Work, answers, facts, side_by_side

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
"""Asking whether there is a GPU must not initialize CUDA before this process forks."""
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")
_AT_ONCE = 5
"""Number of processes that compile at the same time, and the number of threads of each."""


def main() -> int:
    asked = _arguments()
    plan, begin = read(asked.plan), time.monotonic()
    transformers.logging.set_verbosity_error()
    device = Device(asked.device, asked.tiny, asked.rounds)
    _import_models(_chosen(plan, asked))
    if asked.measure and not asked.no_warm_up and any(map(_compiles, _chosen(plan, asked))):
        _compile_ahead(plan, device, asked)
    target = asked.out / ("measured.json" if asked.measure else "traced.json")
    results = {"machine": facts(asked.device), "seed": plan.seed, "tiny": asked.tiny, "runs": {}}
    for run in _chosen(plan, asked):
        late = time.monotonic() - begin > asked.budget
        results["runs"][run.name] = _late(run) if late else _rows(run, device, asked)
        print(f"{time.monotonic() - begin:4.0f} s  {_line(run, results['runs'][run.name])}", flush=True)
        _write(results, target)
    if not asked.measure:
        _time_again(plan, device, asked, results["runs"], begin)
        _write(results, target)
    return 0


def _time_again(plan: Plan, device: Device, asked: argparse.Namespace, rows: dict[str, Any], begin: float) -> None:
    """Add to each row the latency of its run in another process, minutes later."""
    for run in _chosen(plan, asked):
        if "error" in rows[run.name]["run"] or time.monotonic() - begin > asked.budget:
            continue
        again = answers(partial(timed_again, run, device), ("run",), asked.limit)["run"]
        if "error" not in again:
            rows[run.name]["run"]["again_ms"] = again["step_ms"]
            print(
                f"{time.monotonic() - begin:4.0f} s  {run.name} again: {again['step_ms']['median']:.2f} ms", flush=True
            )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("out", type=Path)
    stage = parser.add_mutually_exclusive_group(required=True)
    stage.add_argument("--trace-only", action="store_true")
    stage.add_argument("--measure", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="RUN", default=[], help="runs of the plan, by name")
    parser.add_argument("--piece", metavar="I/N", default="1/1", help="the I-th of N parts of the plan, from 1")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="models of two narrow layers")
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds of each variant, at least 2")
    parser.add_argument("--limit", type=float, default=90, metavar="S", help="of each row")
    parser.add_argument("--budget", type=float, default=540, metavar="S", help="runs begun later are not measured")
    parser.add_argument("--no-warm-up", action="store_true", help="compile nothing beforehand")
    return parser.parse_args()


def _chosen(plan: Plan, asked: argparse.Namespace) -> list[Run]:
    which, pieces = map(int, asked.piece.split("/"))
    part = in_pieces(plan.runs, pieces)[which - 1]
    return [run for run in part if not asked.only or run.name in asked.only]


def _compiles(run: Run) -> bool:
    return any(map(is_compiled, run.optimizations))


def _import_models(runs: list[Run]) -> None:
    """Import the models' classes once, before this process forks. An import that fails here fails again in its run."""
    catalogue = models()
    for run in runs:
        with suppress(ImportError, AttributeError):
            class_of(catalogue[run.model].class_name)


def _compile_ahead(plan: Plan, device: Device, asked: argparse.Namespace) -> None:
    importlib.import_module("torch._dynamo")  # for all processes, which are forks of this one
    tasks: list[Callable[[], object]] = [
        partial(warmed, run, name, device)
        for run in _chosen(plan, asked)
        for name in run.optimizations
        if is_compiled(name)
    ]
    side_by_side(tasks, _AT_ONCE, limit_s=asked.budget / 3)


def _rows(run: Run, device: Device, asked: argparse.Namespace) -> dict[str, Any]:
    """Return the rows of a run: one named "run" while it is traced, else one for each optimization."""
    if asked.measure:
        work: Work = partial(measured, run, device)
        return answers(work, run.optimizations, asked.limit)
    return answers(partial(traced, run, device, asked.out / "traces"), ("run",), asked.limit)


def _late(run: Run) -> dict[str, Any]:
    return {name: {"error": "not measured: the budget of time was spent"} for name in run.optimizations}


def _write(results: dict[str, Any], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _line(run: Run, rows: dict[str, Any]) -> str:
    return f"{run.name} {run.model} {run.workload}: " + ", ".join(_said(name, row) for name, row in rows.items())


def _said(name: str, row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{name}: {row['error'][:120]}"
    return f"{name} {row['speedup']['median']:.2f}x" if "speedup" in row else f"{row['step_ms']['median']:.2f} ms"


if __name__ == "__main__":
    sys.exit(main())
