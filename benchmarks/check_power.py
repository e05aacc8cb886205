"""Measures how often `tracekit check` raises a false alarm, and how often it detects planted regressions.

    python benchmarks/check_power.py                 # about two minutes, on a CPU
    python benchmarks/check_power.py --skip-planted  # without PyTorch

Times are those of the layers of a traced decode of GPT-2 (examples/traces), with noise injected: a factor common to a
run (clock, neighbour), one of each layer in a run, one of each layer in a step, a host that varies, and slow steps. The
planted `.item()` and the graph break are in real programs, which torch.profiler records on this machine's CPU.
"""

import argparse
import math
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from tracekit.analyzers.check import Rules, RunTimes, compare_counters, compare_times, counter_values, run_times
from tracekit.check.false_alarms import wilson
from tracekit.check.run_values import analyzed

SAMPLE = Path(__file__).parents[1] / "examples/traces/h200_gpt2_decode.json.gz"
PAIRS, STEPS, SEED = 300, 20, 17
SLOWER = 1.03


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms."""

    run: float = 0.01
    layer_of_run: float = 0.003
    layer_of_step: float = 0.01
    host: float = 0.02
    slow_steps: float = 0.02
    """Fraction of a layer's steps that take 1.5 times as long."""

    def times(self, factor: float) -> "Noise":
        """Return noise with all standard deviations multiplied by `factor`; slow steps remain as frequent."""
        scaled = {name: factor * value for name, value in asdict(self).items() if name != "slow_steps"}
        return replace(self, **scaled)


def noisy(base: RunTimes, noise: Noise, random: np.random.Generator, slow: str = "") -> RunTimes:
    """Return the times of one run of the traced program, whose layer `slow` takes 3 % longer."""
    drift, layers = math.exp(random.normal(0, noise.run)), {}
    for name, times in base.parts["layer"].items():
        own = math.exp(random.normal(0, noise.layer_of_run)) * (SLOWER if name == slow else 1.0)
        late = np.where(random.random(STEPS) < noise.slow_steps, 1.5, 1.0)
        layers[name] = median(times) * drift * own * late * np.exp(random.normal(0, noise.layer_of_step, STEPS))
    busy = np.sum(list(layers.values()), axis=0)
    host = (median(base.steps_ns) - sum(map(median, base.parts["layer"].values()))) * drift
    steps = busy + host * np.exp(random.normal(0, noise.host, STEPS))
    return RunTimes(
        unprofiled=None, steps_ns=steps.tolist(), parts={"layer": {name: t.tolist() for name, t in layers.items()}}
    )


def rates(base: RunTimes, noise: Noise, runs: int, random: np.random.Generator) -> tuple[int, int, int]:
    """Count false alarms, detected regressions, and regressions detected in the right layer alone, of PAIRS."""
    rules, detected, named = Rules(), 0, 0
    judged = [
        compare_times(*([noisy(base, noise, random) for _ in range(runs)] for _ in range(2)), "runs", rules)
        for _ in range(PAIRS)
    ]
    alarms = sum(any(change.outcome == "regressed" for change in changes) for changes in judged)
    for slow in _layers(base, random):
        before = [noisy(base, noise, random) for _ in range(runs)]
        changes = compare_times(before, [noisy(base, noise, random, slow) for _ in range(runs)], "runs", rules)
        regressed = {change.name for change in changes if change.outcome == "regressed" and change.kind == "layer"}
        detected += slow in regressed
        named += regressed == {slow}
    return alarms, detected, named


def _layers(base: RunTimes, random: np.random.Generator) -> Iterator[str]:
    """Draw PAIRS layers that a check judges."""
    times = {name: median(each) for name, each in base.parts["layer"].items()}
    judged = [name for name, ns in times.items() if ns >= 0.011 * sum(times.values())]
    yield from (str(name) for name in random.choice(judged, PAIRS))


def planted(repeats: int) -> dict[str, tuple[int, int]]:
    """Count how often a scalar read and a graph break are detected where planted, and reported where not."""
    with tempfile.TemporaryDirectory() as folder:
        plain, read, broken, other = (
            counter_values([analyzed(path, use_cache=False).counts])
            for path in _recorded(Path(folder))
            for _ in range(1)
        )
    counts = {}
    for name, planted_in in (("scalar-reads", read), ("graph-breaks", broken)):
        hits = [_regressed(plain, planted_in, name) for _ in range(repeats)]
        misses = [_regressed(plain, other, name) for _ in range(repeats)]
        counts[name] = (sum(hits), sum(misses))
    return counts


def _regressed(before: dict, after: dict, name: str) -> bool:
    changes = {change.name: change for change in compare_counters(before, after, {}, ())}
    return changes[name].outcome == "regressed"


def _recorded(folder: Path) -> Iterator[Path]:
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    class Model(torch.nn.Module):
        def __init__(self, breaks: bool) -> None:
            super().__init__()
            self.first, self.second, self.breaks = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64), breaks

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            if self.breaks:
                torch._dynamo.graph_break()
            return self.second(x).relu()

    for number, (reads, breaks) in enumerate([(False, False), (True, False), (False, True), (False, False)]):
        torch._dynamo.reset()
        model, x = torch.compile(Model(breaks), backend="eager"), torch.randn(8, 64)
        for _ in range(3):
            model(x)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            for step in range(5):
                with record_function(f"step {step}"):
                    loss = model(x).sum()
                    if reads:
                        loss.item()
        path = folder / f"{number}.json"
        profiler.export_chrome_trace(str(path))
        yield path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip-planted", action="store_true", help="without the programs that need PyTorch")
    options = parser.parse_args()
    base = run_times(analyzed(SAMPLE))
    random = np.random.default_rng(SEED)
    print("| noise | runs per side | false alarms | at most (95 %) | 3 % in one layer found | no other layer named |")
    print("|---|---:|---:|---:|---:|---:|")
    for factor, runs in ((1.0, 3), (1.0, 5), (2.0, 5), (2.0, 8)):
        alarms, detected, named = rates(base, Noise().times(factor), runs, random)
        cells = (
            f"×{factor:g}",
            runs,
            f"{alarms} of {PAIRS}",
            f"{100 * wilson(alarms, PAIRS):.1f} %",
            f"{detected} of {PAIRS}",
            f"{named} of {PAIRS}",
        )
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    if not options.skip_planted:
        for name, (hits, misses) in planted(1).items():
            print(f"planted {name}: detected {hits} of 1; where none is planted, {misses} of 1")


if __name__ == "__main__":
    main()
