"""Record the times of `tracekit check --self-test --device cuda` on a GPU, and judge them.

    python benchmarks/check_gpu.py FOLDER           # 30 processes time the same work: about a minute
    python benchmarks/check_gpu.py FOLDER --judge   # what is in FOLDER, anywhere

Prints the A/A test, and in how many of 300 pairs of the same runs a part that takes 3 % longer is found: the measured
times of one part, drawn at random, of one side are multiplied by 1.03.
"""

import argparse
import random
from pathlib import Path

import msgspec

from tracekit.analyzers.check import Rules, RunTimes, compare_times
from tracekit.check import described
from tracekit.check.false_alarms import PAIRS, SIDE, tested, timed_runs

SLOWER = 1.03
SIDES = (SIDE, 5)


def slowed(run: RunTimes, part: str) -> RunTimes:
    """Return the run with one part that takes 3 % longer."""
    times = run.parts["layer"][part]
    more = [(SLOWER - 1) * time for time in times]
    layers = run.parts["layer"] | {part: [SLOWER * time for time in times]}
    steps = [step + extra for step, extra in zip(run.steps_ns, more, strict=True)]
    return msgspec.structs.replace(run, steps_ns=steps, parts={"layer": layers})


def planted(times: list[RunTimes], side: int) -> tuple[int, int]:
    """Return in how many of 300 pairs the planted part is found, and in how many of these no other one is named."""
    drawn, hits, alone = random.Random(2), 0, 0
    for _ in range(PAIRS):
        group, part = drawn.sample(times, 2 * side), drawn.choice(list(times[0].parts["layer"]))
        after = [slowed(run, part) for run in group[side:]]
        changes = compare_times(group[:side], after, "runs", Rules())
        named = {change.name for change in changes if change.kind == "layer" and change.outcome == "regressed"}
        hits, alone = hits + (part in named), alone + (named == {part})
    return hits, alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    args = parser.parse_args()
    path = args.folder / "runs.json"
    if not args.judge:
        args.folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(timed_runs(args.device)))
    times = msgspec.json.decode(path.read_bytes(), type=list[RunTimes])
    print(described(tested(times, f"{len(times)} processes", Rules())))
    for side in SIDES:
        hits, alone = planted(times, side)
        print(f"3 % in one part, {side} and {side} runs: found in {hits} of {PAIRS} pairs, alone in {alone}")


if __name__ == "__main__":
    main()
