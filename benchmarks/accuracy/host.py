"""Chapter: compares simulated unmodified steps, and whole modelled runs, with their measured time on an H200."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean, median

from measurements.modelled_step import ModelledStep, modelled
from measurements.steps import TimedStep, full, unseen

from accuracy.chapter import Chapter, at_least, at_most, percent, seen, table
from tracekit.analyzers import analyze
from tracekit.analyzers.core import Interval, TracekitError
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict import HostCosts, Reproduction, assumed, baseline, calibrated
from tracekit.analyzers.trace import load

_ROOT = Path(__file__).parents[2]
_CALIBRATION = _ROOT / "benchmarks" / "data" / "h200_calibration.json"
_UNKNOWN_GPU = "a100"
"""Used for traces that do not name their GPU. The kernel times are those of the trace."""
_NEAR = 0.12
_REPRODUCED = """Each trace's median step, simulated from its own host and kernel times without any fitting, beside its
measured time under the profiler. Shared traces are public ones, with several kinds of GPU, threads and streams."""
_LATENCIES = """Runs modelled with `--device model --gpu h200`, beside the median latency of processes in which no
profiler had recorded. The scale of the host's costs, and their division by class, are fitted on the host-bound runs
([how](predictions.md#host)); kernel times, and device-bound runs, are not. *Calibrated*: with the results of `tracekit
calibrate` on one of those days, beside the processes that ran alone then. Brackets: from a fast to a slow process,
without the kernel model's error. GPT-2 decode in fp16 ran once, while other processes compiled."""
_UNSEEN = """Runs that were not used for fitting: those of the later rounds of speed-ups (below). Measured is the median
over the runs of their optimizations."""


def chapter(shared: Path) -> Chapter:
    reproduced = dict(_reproductions(shared))
    known, others = _runs(full()), _runs(unseen())
    alone = [run for run in known if run.alone]
    errors, unseen_errors = ([abs(run.error) for run in runs] for runs in (known, others))
    targets = (
        at_least("unmodified steps simulated within 5 %", 1.0, _share(one.holds for one in reproduced.values())),
        *seen(
            at_least(
                "modelled runs within 12 % (median over processes)", 1.0, _share(error <= _NEAR for error in errors)
            )
        ),
        *seen(at_most("modelled latency, mean error", 0.10, fmean(errors))),
        at_most("the same, calibrated", 0.10, fmean(abs(run.calibrated_error) for run in alone)),
        at_most("the same, runs not used for fitting", 0.10, fmean(unseen_errors)),
    )
    sections = ("### Simulated unmodified steps", _REPRODUCED, _reproduction_table(reproduced))
    modelled_runs = ("### Modelled runs", _LATENCIES, _run_table(known), _UNSEEN, _unseen_table(others))
    text = "\n\n".join([*sections, *modelled_runs])
    return Chapter("Host and device timelines", text, targets)


class _Run:
    """One run, as timed in all processes."""

    def __init__(self, name: str, steps: list[ModelledStep]) -> None:
        self.name, step = name, steps[0]
        times = [each.timed.median_us for each in steps]
        self.alone = [each.timed.median_us for each in steps if each.timed.process == "alone"]
        self.measured, self.least, self.most = median(times), min(times), max(times)
        self.expected = _interval(step, assumed(step.gpu))
        self.calibrated = _interval(step, _calibrated())
        self.error = self.expected.expected / self.measured - 1
        self.calibrated_error = self.calibrated.expected / median(self.alone) - 1 if self.alone else 0.0


def _runs(timed: Iterable[TimedStep]) -> list[_Run]:
    runs: dict[str, list[ModelledStep]] = {}
    for each in timed:
        steps = runs.setdefault(each.name, [])
        first = steps[0] if steps else modelled(each)
        steps.append(ModelledStep(each, first.recording, first.kernels, first.gpu))
    return [_Run(name, steps) for name, steps in runs.items()]


def _interval(step: ModelledStep, host: HostCosts) -> Interval:
    span = host.span
    return Interval(*(step.latency_us(host.scaled(factor)) for factor in (span.low, span.expected, span.high)))


def _calibrated() -> HostCosts:
    measured = json.loads(_CALIBRATION.read_text(encoding="utf-8"))
    calibration = calibrated({name: Interval(*times) for name, times in measured["host_us"].items()}, "")
    assert calibration is not None
    return calibration


def _reproductions(shared: Path) -> Iterator[tuple[str, Reproduction]]:
    for path in (
        *sorted((_ROOT / "examples" / "traces").glob("*.json.gz")),
        *sorted(shared.glob("traces/**/*.json.gz")),
    ):
        try:
            trace = load(path)
            analysis = analyze(trace, None)
        except TracekitError:
            continue
        if analysis.source.device == "gpu" and analysis.source.gpu is None:
            analysis = analyze(trace, hardware.find(_UNKNOWN_GPU))
        base = baseline(trace, analysis)
        if base is not None and base.as_traced is not None:
            yield path.name.removesuffix(".json.gz"), base.as_traced


def _reproduction_table(reproductions: Mapping[str, Reproduction]) -> str:
    rows = (
        (name, f"{one.simulated_us:,.0f}", f"{one.stated_us:,.0f}", percent(one.error, 1))
        for name, one in reproductions.items()
    )
    return table(("trace", "simulated, µs", "took, µs", "error"), rows, 3)


def _run_table(runs: list[_Run]) -> str:
    head = ("run", "measured, µs", "processes", "modelled", "error", "alone", "calibrated", "error")
    return table(head, (_cells(run) for run in runs), 7)


def _unseen_table(runs: list[_Run]) -> str:
    rows = ((run.name, f"{run.measured:,.0f}", _shown(run.expected), percent(run.error)) for run in runs)
    return table(("run", "measured, µs", "modelled", "error"), rows, 3)


def _cells(run: _Run) -> tuple[str, ...]:
    processes = f"{run.least:,.0f} to {run.most:,.0f}" if run.most > run.least else ""
    cells = (run.name, f"{run.measured:,.0f}", processes, _shown(run.expected), percent(run.error))
    if not run.alone:
        return (*cells, "", "", "")
    return (*cells, f"{median(run.alone):,.0f}", _shown(run.calibrated), percent(run.calibrated_error))


def _shown(value: Interval) -> str:
    return f"{value.expected:,.0f} ({value.low:,.0f} to {value.high:,.0f})"


def _share(flags: Iterable[bool]) -> float:
    return fmean(map(float, flags))
