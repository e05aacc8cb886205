"""Times slow scripts with one planted cause each in turn with their fixed variants, and records the slow ones.

    python benchmarks/cases/run.py OUT [CASE ...] [--set 2]

Writes OUT/CASE.json.gz, the trace, and OUT/measured.json. Each case runs in a separate process; the trace
is recorded after everything was timed. `--quiet` does not say what the fixes gained, so that a diagnosis can be
written before anybody knows. `--seconds` bounds the whole; cases that it leaves no time for are skipped.
`--device cpu --tiny` tries the scripts where there is no GPU.
"""

import argparse
import contextlib
import importlib
import json
import multiprocessing
import os
import platform
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from catalogue import SETS, Case, cases
from recording import record
from timing import Variant, gain, time_in_turn

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
"""Asking whether there is a GPU must not initialize CUDA before this process forks."""

_BUDGET_S = 7.0
_A_CASE_S = 90
_BEGUN_BEFORE_S = 20
"""A case is not started if fewer seconds are left."""


def main() -> int:
    asked = _arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    end = time.perf_counter() + asked.seconds
    known = cases(asked.set)
    _import([known[name] for name in asked.cases or known])
    rows: dict[str, Any] = {}
    with multiprocessing.get_context("fork").Pool(1) as process:  # this one must not touch the GPU before it forks
        versions = process.apply(_versions, (asked,))
    for name in asked.cases or known:
        rows[name] = _within(known[name], asked, end - time.perf_counter())
        print(_line(name, rows[name], asked.quiet), flush=True)
        measured = versions | {"cases": rows}
        (asked.out / "measured.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    return int(any("error" in row for row in rows.values()))


def _import(asked_for: list[Case]) -> None:
    """Import the scripts once, before any process is forked. An import that fails is the error of its case."""
    for case in asked_for:
        with contextlib.suppress(ImportError):
            importlib.import_module(case.module)


def _within(case: Case, asked: argparse.Namespace, left_s: float) -> dict[str, Any]:
    if left_s < _BEGUN_BEFORE_S:
        return {"error": f"skipped: {max(left_s, 0):.0f} of {asked.seconds:.0f} s were left"}
    return _in_a_process(case, asked, min(left_s, _A_CASE_S))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="all of the set if none is named")
    parser.add_argument("--set", type=int, choices=list(SETS), default=1)
    parser.add_argument("--seconds", type=float, default=600, help="for everything (default: 600)")
    parser.add_argument("--quiet", action="store_true", help="print no gains")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="models of two narrow layers")
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds of each variant, at least 3")
    asked = parser.parse_intermixed_args()
    known = cases(asked.set)
    if unknown := set(asked.cases) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; the cases of set {asked.set} are {', '.join(known)}")
    return asked


def _in_a_process(case: Case, asked: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Run in a fork of this process, which has imported torch but not used the GPU."""
    fork = multiprocessing.get_context("fork")
    answers, answer = fork.Pipe(duplex=False)
    process = fork.Process(target=_answer, args=(case, asked, answer))
    process.start()
    answer.close()
    try:
        return answers.recv() if answers.poll(seconds) else {"error": f"it took more than {seconds:.0f} s"}
    except EOFError:
        return {"error": "its process ended without an answer"}
    finally:
        process.join(10)
        process.kill()


def _answer(case: Case, asked: argparse.Namespace, answer: Any) -> None:
    if asked.device == "cpu":
        torch.set_num_threads(1)
    try:
        answer.send(measured(case, asked.device, asked.tiny, asked.rounds, asked.out))
    except Exception as error:
        traceback.print_exc()
        answer.send({"error": f"{type(error).__name__}: {str(error)[:300]}"})


def measured(case: Case, device: str, tiny: bool, rounds: int, out: Path) -> dict[str, Any]:
    begin = time.perf_counter()
    run = importlib.import_module(case.module).run
    slow, slow_peak = _started(run(False, device, tiny), case, device)
    fixed, fixed_peak = _started(run(True, device, tiny), case, device)
    time_in_turn(slow, fixed, rounds, _BUDGET_S)
    trace = out / f"{case.name}.json.gz"
    record(slow.steps, case, trace)
    return {
        "unit": case.unit,
        "advice": case.advice,
        "slow": slow.row() | {"peak_bytes": slow_peak},
        "mended": fixed.row() | {"peak_bytes": fixed_peak},
        "gain": gain(slow, fixed),
        "trace_bytes": trace.stat().st_size,
        "took_s": round(time.perf_counter() - begin, 1),
    }


def _started(steps: Iterator[int], case: Case, device: str) -> tuple[Variant, int | None]:
    """Return the script after its first steps, and its peak of device memory."""
    torch.manual_seed(0)
    if device == "cpu":
        return Variant(steps, lambda: None, case.warm_up, case.round_s), None
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    variant = Variant(steps, torch.cuda.synchronize, case.warm_up, case.round_s)
    return variant, torch.cuda.max_memory_allocated() - before


def _line(name: str, row: dict[str, Any], quiet: bool) -> str:
    if "error" in row:
        return f"{name}: {row['error']}"
    recorded = f"{row['trace_bytes'] / 1e3:.0f} KB, {row['took_s']} s"
    if quiet:
        return f"{name}: {recorded}"
    slow, fixed = (row[variant]["step_ms"]["median"] for variant in ("slow", "mended"))
    return f"{name}: {slow:.2f} ms, fixed {fixed:.2f} ms: {row['gain']['median']:.2f}x; {recorded}"


def _versions(asked: argparse.Namespace) -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if asked.device == "cuda" else None
    return {
        "gpu": gpu,
        "device": asked.device,
        "tiny": asked.tiny,
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "transformers": transformers.__version__,
    }


if __name__ == "__main__":
    sys.exit(main())
