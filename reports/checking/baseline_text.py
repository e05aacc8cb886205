"""Baselines as text for a terminal."""

from collections.abc import Mapping, Sequence

from tracekit.analyzers.gate.counters import Values
from tracekit.analyzers.gate.run_times import RunTimes
from tracekit.reports.checking.check_sentences import counted
from tracekit.reports.names import printable
from tracekit.reports.numbers import duration


def described(name: str, saved: str, commit: str, fingerprint: Mapping[str, str | int]) -> str:
    """Return a baseline in one line."""
    words = [
        str(fingerprint[key]) for key in ("kind", "device", "gpu", "model", "workload", "dtype") if key in fingerprint
    ]
    return printable(f"{name}  {saved[:10]}  {commit or '-'}  {' '.join(words)}") + "\n"


def in_full(fingerprint: Mapping[str, str | int], counters: Values, runs: Sequence[RunTimes]) -> str:
    """Return the fingerprint, the times and the counters of a baseline."""
    lines = [f"  {name.replace('_', ' ')}: {printable(str(value))}" for name, value in fingerprint.items()]
    lines += ["", *(f"  run {number}: {_run(run)}" for number, run in enumerate(runs, 1)), ""]
    return "\n".join([*lines, *(f"  {name}: {_values(name, values)}" for name, values in counters.items())]) + "\n"


def _run(run: RunTimes) -> str:
    times = sorted(run.steps_ns)
    steps = f"{len(times)} step{'s' * (len(times) != 1)} of {duration(times[len(times) // 2] / 1e3)} in the trace"
    return f"{duration(run.unprofiled.median_us)} per step; {steps}" if run.unprofiled else steps


def _values(name: str, values: tuple[float, ...]) -> str:
    texts = [counted(name, value) for value in (values[0], values[-1])]
    return texts[0] if values[0] == values[-1] else f"{texts[0]} to {texts[1]}, differs between steps"
