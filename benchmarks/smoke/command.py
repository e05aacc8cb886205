"""Tries on this machine's GPU all that touches one: each command and function once, in at most five minutes.

    python -m benchmarks smoke --out FOLDER [--seconds 240] [--jobs 4] [--only GLOB]
    python -m benchmarks smoke --out FOLDER --without-gpu     # what a CPU can do, with a tiny model

A check is a command with its status, the files that it must write, and numbers that physics allows: no kernel above the
peak of the GPU, no time of zero, no speed-up of a thousand. Each has a line, a failed one also its last output.
FOLDER/smoke.json holds the results. The status is 1 if a check failed. What needs a package that is not installed, and
what the seconds do not suffice for, is skipped.
"""

import argparse
import json
import platform
import subprocess
import time
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.smoke.checks import checks
from benchmarks.smoke.running import FAILED, OK, SKIPPED, Outcome, run


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, required=True, help="folder of the runs and of smoke.json")
    asked.add_argument("--seconds", type=float, default=240, help="no check is begun after them")
    asked.add_argument("--only", default="*", help="names of the checks; the runs of others may be in the folder")
    asked.add_argument("--jobs", type=int, default=4, help="checks at a time")
    asked.add_argument("--without-gpu", action="store_true")
    options = asked.parse_args()
    out, gpu, began = options.out.resolve(), not options.without_gpu, time.monotonic()
    wanted = [each for each in checks(out, gpu) if fnmatch(each.name, options.only)]
    outcomes = []
    for each in run(wanted, out, gpu=gpu, seconds=options.seconds, jobs=options.jobs):
        outcomes.append(each)
        print(line(each), flush=True)
    took = time.monotonic() - began
    counts = {state: sum(each.state == state for each in outcomes) for state in (OK, FAILED, SKIPPED)}
    print(", ".join(f"{count} {state}" for state, count in counts.items()) + f", {took:.0f} s")
    result = {"machine": machine(), "seconds": round(took, 1), **counts, "checks": [asdict(each) for each in outcomes]}
    (out / "smoke.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    raise SystemExit(1 if counts[FAILED] or not counts[OK] else 0)


def line(outcome: Outcome) -> str:
    why = f"  {outcome.why}" if outcome.why else ""
    return f"{outcome.state:<8}{outcome.seconds:6.1f} s  {outcome.name}{why}"


def machine() -> dict[str, str]:
    """Return what the results depend on: GPU, versions, and the commit."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
    ).stdout.strip()
    return {"gpu": gpu, "torch": torch.__version__, "python": platform.python_version(), "commit": commit}


if __name__ == "__main__":
    main()
