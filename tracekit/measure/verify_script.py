"""Measures optimizations of a script's run: the script runs again, with and without them, in alternation."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tracekit.advise import parse
from tracekit.analyzers.core import InputError, TracekitError, counted, progressed, reading
from tracekit.analyzers.cost import known
from tracekit.analyzers.results import Verification, Verified
from tracekit.apply import ScriptChanges
from tracekit.capture import summarize
from tracekit.measure import script_run, trial
from tracekit.measure.expectations import Expected
from tracekit.measure.interleaved import median_interval
from tracekit.measure.script_run import Command, Main, StepTimes
from tracekit.measure.worker import Worker, checked, failure_of
from tracekit.run import Device, Run, Say, Settings, seal

FEWEST_PAIRS, MOST_PAIRS = 3, 7
_AGAIN = "Record it again: tracekit run {script}"
_STEPS = (
    "A step is from one call of {model} to the next, at the script's own pace, in {pairs} pairs of runs; outputs were "
    "not compared."
)


@dataclass(frozen=True)
class ScriptRun:
    """A script's run that may be repeated here."""

    run: Run
    settings: Settings
    command: Command


def script_run_of(run: Run, folder: Path, device: Device) -> ScriptRun:
    """Return how to run the script again. Raises InputError if this user did not record it, or it has changed."""
    again, script = _AGAIN.format(script=run.script), Path(run.script)
    what = f"The script of {folder} is not run again."
    if run.ranks > 1:
        why = f"It is one rank of a job of {run.ranks}, which one process cannot repeat."
        raise InputError(what, why, "Record the script without torchrun.")
    if not run.seal:
        why = "run.json does not hold all its arguments: those that look like secrets are not kept."
        raise InputError(what, why, "Pass secrets in the environment, and record it again.")
    if not seal.is_ours(run.seal, run.script, run.arguments, run.digest):
        raise InputError(what, "It was not recorded by you on this machine, and a run's folder is not trusted.", again)
    with reading(what, f"Call it in the folder in which {run.script} was started."):
        text = script.read_bytes()
    if sha256(text).hexdigest() != run.digest:
        raise InputError(what, f"{run.script} has changed since.", again)
    dtype: Any = run.dtype or "fp32"
    settings = Settings(
        model=script.name, gpu=run.gpu, device=device, dtype=dtype, batch_size=run.batch_size, weights="pretrained"
    )
    return ScriptRun(run, settings, Command(script, tuple(run.arguments), device == "cuda"))


def applicable(names: Sequence[str]) -> list[str]:
    """Return the optimizations that can be applied around a script."""

    def fits(name: str) -> bool:
        try:
            parse(name).change_script(ScriptChanges())
        except TracekitError:
            return False
        return True

    return list(filter(fits, names))


def measured(
    again: ScriptRun, names: Sequence[str], predictions: Sequence[Expected], wall_s: float, say: Say, *, verbose: bool
) -> Iterator[Verification]:
    """Measure each optimization, and yield all results so far after each one."""
    say(f"running {again.command.script} again: it is unchanged, and each of its runs writes what it always writes")
    main = checked(_called(verbose, script_run.main_module, again.command))
    results: list[Verified] = []
    for name, prediction in counted([*zip(names, predictions, strict=True)], "measuring optimizations"):
        say(f"measuring {name} ({len(results) + 1} of {len(names)})")
        results.append(_verified(again, main, name, prediction, wall_s, verbose))
        summary = trial.summary(again.settings, main.began, results, None, own=True)
        about = {**summary.settings, "workload": again.run.workload or "script", "dtype": again.run.dtype}
        yield replace(summary, settings=about)


def _verified(again: ScriptRun, main: Main, name: str, prediction: Expected, wall_s: float, verbose: bool) -> Verified:
    predicted = trial.unmeasured(name, prediction)
    gpu = known(again.run.gpu) if again.command.on_cuda else None
    try:
        plain = ScriptChanges(gpu=gpu, on_cuda=again.command.on_cuda)
        changes = parse(name).change_script(plain)
        pairs = _pairs(again.command, main, (plain, changes), wall_s, verbose)
    except TracekitError as error:
        return replace(predicted, error=str(failure_of(error)))
    before, after = (summarize([us for each in side for us in each.samples_us]) for side in zip(*pairs, strict=True))
    ratios = [summarize(one.samples_us).median_us / summarize(two.samples_us).median_us for one, two in pairs]
    steps = _STEPS.format(model=main.name, pairs=len(pairs))
    return replace(
        predicted,
        measured=median_interval(ratios),
        before=before,
        after=after,
        peak_memory_bytes=max(two.peak_memory_bytes for _, two in pairs),
        caveats=(*predicted.caveats, *changes.caveats, steps),
    )


def _pairs(
    command: Command, main: Main, sides: tuple[ScriptChanges, ScriptChanges], wall_s: float, verbose: bool
) -> list[tuple[StepTimes, StepTimes]]:
    """Run the script on both sides in turn, as often as there is time for; the order in a pair alternates, too."""
    began, pairs = time.monotonic(), list[tuple[StepTimes, StepTimes]]()
    progressed("timing pairs of runs", 0, FEWEST_PAIRS)
    while len(pairs) < MOST_PAIRS:
        passed = time.monotonic() - began
        if len(pairs) >= FEWEST_PAIRS and passed + passed / len(pairs) > wall_s:
            break
        times: dict[int, StepTimes] = {}
        for side in (1, 0) if len(pairs) % 2 == 0 else (0, 1):
            times[side] = checked(_called(verbose, script_run.timed, command, main, sides[side]))
        pairs.append((times[0], times[1]))
        progressed("timing pairs of runs", len(pairs), _planned(len(pairs), time.monotonic() - began, wall_s))
    return pairs


def _planned(done: int, passed_s: float, wall_s: float) -> int:
    """Return how many pairs are timed in all, at the rate so far."""
    return max(done, FEWEST_PAIRS, min(MOST_PAIRS, int(done * wall_s / passed_s)))


def _called(verbose: bool, function: Any, *arguments: Any) -> Any:
    """Call a function in a process of its own."""
    with Worker(verbose=verbose) as worker:
        return worker.call(function, *arguments)
