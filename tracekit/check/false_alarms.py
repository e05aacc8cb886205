"""Measures how often checks on this machine raise a false alarm: the same work against itself (A/A)."""

import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, stdev

from tracekit.analyzers.check import Outcome, Rules, RunTimes, TimeChange, compare_times, overall
from tracekit.analyzers.core import InputError, TracekitError
from tracekit.analyzers.results import say
from tracekit.check.options import configuration
from tracekit.check.run_values import recorded
from tracekit.reports.words import sentence

PAIRS = 300
SIDE = 3
"""Runs on each side of a pair."""
PROCESSES, STEPS = 30, 20
_SEED = 1
_MOST_STARTING = 6
_WORK = Path(__file__).with_name("self_test_work.py")


@dataclass(frozen=True)
class SelfTest:
    """The result of an A/A test."""

    what: str
    pairs: int
    false_alarms: int
    inconclusive: int
    """Pairs without a verdict, which say nothing about false alarms."""
    spread: float
    """Standard deviation between runs of the logarithm of the latency."""
    narrowest: float
    """Half the mean width of the latency's interval: the smallest slowdown that a check notices."""
    in_order: tuple[int, int]
    """False alarms, and pairs in which all runs of one side came before those of the other."""

    @property
    def outcome(self) -> Outcome:
        """Return pass, or inconclusive if most pairs had no verdict."""
        return "pass" if 2 * self.inconclusive <= self.pairs else "inconclusive"


def self_test(runs: Sequence[str], device: str = "cpu") -> SelfTest:
    """Return an A/A test of the given runs of the same thing, or of work timed now on `device`."""
    settings, _ = configuration()
    if runs:
        times = list(recorded(runs).runs)
        what = f"{len(times)} runs"
    else:
        times = timed_runs(device)
        what = f"{PROCESSES} processes of {STEPS} steps on this machine's {'GPU' if device == 'cuda' else 'CPU'}"
    return tested(times, what, settings.rules)


def tested(times: Sequence[RunTimes], what: str, rules: Rules) -> SelfTest:
    """Judge pairs of disjoint groups of the runs, drawn at random and in order of time."""
    if len(times) < 2 * SIDE:
        raise InputError(
            "The self-test cannot use these runs.",
            f"It needs {2 * SIDE} runs of the same thing; there are {len(times)}.",
            "Record more, or name none: then work on this machine's CPU is timed.",
        )
    drawn = random.Random(_SEED)
    groups = [drawn.sample(range(len(times)), 2 * SIDE) for _ in range(PAIRS)]
    orders = [list(range(first, first + 2 * SIDE)) for first in range(0, len(times) - 2 * SIDE + 1, SIDE)]
    checks = [_judge(times, group, rules) for group in groups]
    outcomes = [overall(changes, (), ()) for changes in checks]
    in_order = [overall(_judge(times, group, rules), (), ()) for group in orders]
    return SelfTest(
        what=what,
        pairs=PAIRS,
        false_alarms=outcomes.count("regressed"),
        inconclusive=outcomes.count("inconclusive"),
        spread=stdev(math.log(_latency(run)) for run in times),
        narrowest=sum(changes[0].ratio.high - changes[0].ratio.low for changes in checks) / 2 / PAIRS,
        in_order=(in_order.count("regressed"), len(in_order)),
    )


def described(result: SelfTest) -> str:
    """Return the result as text."""
    alarms, pairs = result.in_order
    sure = result.outcome == "pass"
    unsure = "" if sure else sentence(say("self-test-inconclusive"))
    most = f" (at most {_percent(wilson(result.false_alarms, result.pairs))} with 95 % confidence)" if sure else ""
    return (
        f"A/A self-test: {result.what}; {result.pairs} pairs of {SIDE} and {SIDE} runs, drawn at random.\n"
        f"  inconclusive: {result.inconclusive}; a slowdown of about {_percent(result.narrowest)} is noticed\n"
        f"  false alarms: {result.false_alarms} of the {result.pairs}{most}\n"
        f"  one side after the other: {alarms} of {pairs} pairs\n"
        f"  spread between runs: {_percent(result.spread)}; for single runs, set run_spread = {result.spread:.3f}\n"
        f"{unsure}"
    )


def timed_runs(device: str, processes: int = PROCESSES) -> list[RunTimes]:
    """Time the fixed work in new processes, one at a time. For a GPU, other processes start meanwhile, which takes
    longest."""
    with tempfile.NamedTemporaryFile() as lock, ThreadPoolExecutor(_starting(device)) as pool:
        arguments = [str(STEPS), *(["cuda", lock.name] if device == "cuda" else [])]
        return list(pool.map(_timed_run, [arguments] * processes))


def _starting(device: str) -> int:
    """Return the number of processes that start at a time."""
    return max(1, min(_MOST_STARTING, (os.cpu_count() or 1) // 2)) if device == "cuda" else 1


def _timed_run(arguments: list[str]) -> RunTimes:
    command = [sys.executable, str(_WORK), *arguments]
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=alone)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        hint = "Run it on a machine with a GPU that torch can use, or without --device." if "cuda" in arguments else ""
        raise TracekitError("The work of the self-test could not be timed.", f"It ended with: {last}.", hint)
    parts = {str(number): list(map(float, times)) for number, times in enumerate(json.loads(done.stdout))}
    steps = [sum(times) for times in zip(*parts.values(), strict=True)]
    return RunTimes(unprofiled=None, steps_ns=steps, parts={"layer": parts})


def wilson(count: int, size: int, confidence: float = 0.95) -> float:
    """Return the upper end of Wilson's interval of a proportion."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = count / size
    middle, half = share + z**2 / (2 * size), z * math.sqrt(share * (1 - share) / size + z**2 / (4 * size**2))
    return (middle + half) / (1 + z**2 / size)


def _judge(times: Sequence[RunTimes], group: Sequence[int], rules: Rules) -> tuple[TimeChange, ...]:
    """Return the changes of the times in a pair: that of the latency first."""
    before, after = ([times[at] for at in half] for half in (group[:SIDE], group[SIDE:]))
    return compare_times(before, after, "runs", rules)


def _latency(run: RunTimes) -> float:
    steps = sorted(run.latencies_ns(timed=True))
    return float(steps[len(steps) // 2])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
