"""Checks a run against its baseline."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tracekit.analyzers.check import (
    Basis,
    Check,
    TimeChange,
    basis_of,
    compare_counters,
    compare_times,
    judged,
    latency_in_turn,
    overall,
)
from tracekit.analyzers.compare import compare_summaries
from tracekit.analyzers.core import InputError, UnknownNameError
from tracekit.analyzers.trace import is_url
from tracekit.check import baseline_file
from tracekit.check.options import Configuration, configuration
from tracekit.check.run_values import ENTRIES, WORK, Recorded, culprits, recorded, unknown, unlike
from tracekit.measure import Worker, checked, jobs
from tracekit.run import Settings, settings_of

Blocks = tuple[tuple[float, float], ...]


class UnlikeError(InputError):
    """The run is not comparable with its baseline: of another GPU, other versions or other settings."""

    status = 4


@dataclass(frozen=True)
class Options:
    """The options of a check from the command line."""

    counters_only: bool = False
    accept: tuple[str, ...] = ()
    """Entries of the fingerprint that may differ."""
    baselines: Path | None = None
    """Folder of the baselines; None for that of the configuration."""
    use_cache: bool = True
    in_turn_s: float = 0.0
    """Seconds for timing both runs again, alternately; 0 to compare the times in the traces."""


def check(runs: Sequence[str | Path], against: Sequence[str | Path] = (), options: Options = Options()) -> Check:
    """Judge one or more runs of the same thing against a baseline, given by name or as runs; without a baseline,
    against budgets.

    Raises UnlikeError if the runs cannot be compared, UnknownNameError if there is no such baseline.
    """
    settings, root = configuration()
    _check_accepted((*settings.accept, *options.accept))
    before = read_baseline(against, options, settings, root) if against else None
    after = recorded(runs, use_cache=options.use_cache)
    if before is None:
        return _judge_budgets(after, settings, options)
    notes = _refused_or_noted(before, after, settings, options)
    blocks: Blocks = ()
    if options.in_turn_s and not options.counters_only:
        blocks = timed_in_turn(_only(against), _only(runs), wall_s=options.in_turn_s)
    return judge(before, after, settings, counters_only=options.counters_only, notes=notes, blocks=blocks)


def folder_of(options: Options, settings: Configuration, root: Path) -> Path:
    """Return the folder of the baselines."""
    return options.baselines or root / settings.baselines


def read_baseline(against: Sequence[str | Path], options: Options, settings: Configuration, root: Path) -> Recorded:
    """Return the baseline that `against` names, or else the runs that it names."""
    folder = folder_of(options, settings, root)
    _check_named(against, folder)
    name = str(against[0])
    there = len(against) > 1 or Path(name).exists() or is_url(name)
    if there and not (len(against) == 1 and name in baseline_file.names_in(folder)):
        return recorded(against, use_cache=options.use_cache)
    held = baseline_file.read(name, folder)
    return baseline_file.as_recorded(held, baseline_file.path_of(name, folder))


def _check_accepted(names: Sequence[str]) -> None:
    wrong = [name for name in names if name not in ENTRIES]
    if wrong:
        raise UnknownNameError(
            f"{wrong[0]!r} cannot be accepted.",
            f"It is not an entry of a fingerprint: {', '.join(ENTRIES)}.",
            "Name one of them with --accept, or in pyproject.toml.",
        )


def _check_named(against: Sequence[str | Path], folder: Path) -> None:
    """Raise InputError for an empty name, and for a baseline among several runs."""
    names = baseline_file.names_in(folder)
    if not all(map(str, against)):
        raise InputError("--against is empty.", f"Baselines in {folder}: {', '.join(names) or 'none'}.", "Name one.")
    mixed = [each for each in map(str, against) if each in names and not Path(each).exists()]
    if mixed and len(against) > 1:
        raise InputError(
            f"{mixed[0]} cannot be one of several runs.",
            "It is a baseline, and a run is checked against one baseline, or against runs.",
            f"Name it alone: --against {mixed[0]}.",
        )


def judge(
    before: Recorded,
    after: Recorded,
    settings: Configuration,
    *,
    counters_only: bool = False,
    notes: Sequence[str] = (),
    blocks: Blocks = (),
) -> Check:
    """Return the verdict on comparable runs. `blocks` are latencies that were timed alternately."""
    rules = settings.rules
    modelled = before.kind == after.kind == "modelled"
    basis: Basis | None = None if counters_only else basis_of(before.runs, after.runs, modelled=modelled)
    times: tuple[TimeChange, ...] = compare_times(before.runs, after.runs, basis, rules) if basis else ()
    if blocks:
        basis, times = "in turn", (latency_in_turn(blocks, rules), *times[1:])
    counters = compare_counters(before.counters, after.counters, settings.counters, settings.ignore)
    lines = judged(settings.budget, after.runs, after.counters, basis, rules)
    comparison = compare_summaries(before.step, after.step, (before.name, after.name))
    verdict = Check(
        run=after.name,
        baseline=before.name,
        outcome=overall(times, counters, lines),
        basis=basis,
        counters_only=counters_only,
        level=rules.level,
        margin=rules.margin,
        times=times,
        counters=counters,
        budgets=lines,
        notes=(*notes, *_basis_notes(basis, settings), *_compile_notes(before, after)),
        comparison=comparison,
        kind=after.kind,
    )
    return replace(verdict, culprits=culprits(verdict, before, after))


def _only(runs: Sequence[str | Path]) -> str | Path:
    if len(runs) != 1 or not Path(runs[0]).is_dir():
        raise InputError(
            "The runs cannot be timed alternately.",
            "That needs the folder of one run, with its settings, as RUN and as --against.",
            "Name two folders that tracekit profile made.",
        )
    return runs[0]


def _judge_budgets(after: Recorded, settings: Configuration, options: Options) -> Check:
    if settings.budget.empty:
        raise InputError(
            f"There is nothing to check {after.name} against.",
            "No baseline is named, and no budget is set.",
            "Name one with --against, or set a budget in [tool.tracekit.check] of pyproject.toml.",
        )
    basis: Basis = "modelled" if after.kind == "modelled" else "steps"
    timed = None if options.counters_only else basis
    lines = judged(settings.budget, after.runs, after.counters, timed, settings.rules)
    rules = settings.rules
    verdict = Check(
        after.name, "", overall((), (), lines), timed, options.counters_only, rules.level, rules.margin, budgets=lines
    )
    return replace(verdict, kind=after.kind, notes=_basis_notes(timed, settings))


def _refused_or_noted(before: Recorded, after: Recorded, settings: Configuration, options: Options) -> tuple[str, ...]:
    """Return notes about different fingerprints. Raises UnlikeError if they forbid the comparison."""
    accepted = {*settings.accept, *options.accept}
    other = unlike(before.fingerprint, after.fingerprint, accepted)
    differing = ", ".join(f"{name.replace('_', ' ')} {pair}" for name, pair in other.items())
    forbidden = [name for name in other if name in WORK] if options.counters_only else [*other]
    if forbidden:
        accept = " ".join(f"--accept {name}" for name in forbidden)
        counters = (
            "" if options.counters_only or set(forbidden) & {*WORK} else "compare only counters with --only counters, "
        )
        raise UnlikeError(
            f"{after.name} cannot be compared with {before.name}.",
            f"They differ: {differing} (baseline and run).",
            f"Save a new baseline, {counters}or allow the difference with {accept}.",
        )
    notes = [f"Only counters are compared: {differing} (baseline and run)."] if other else []
    allowed = unlike(before.fingerprint, after.fingerprint, ())
    differences = [f"{name.replace('_', ' ')} {pair}" for name, pair in allowed.items() if name in accepted]
    notes += [f"Compared in spite of: {', '.join(differences)} (baseline and run)."] if differences else []
    missing = [name.replace("_", " ") for name in unknown(before.fingerprint, after.fingerprint)]
    notes += [f"Only one of the two states: {', '.join(missing)}. It is assumed to be the same."] if missing else []
    return tuple(notes)


def _compile_notes(before: Recorded, after: Recorded) -> tuple[str, ...]:
    captures = [run.step.source.capture for run in (before, after)]
    if not any(capture and capture.without_compile for capture in captures):
        return ()
    return (
        "The program uses torch.compile, and is modelled without it: a new graph break or other compiled code is not "
        "seen. Check runs that were measured on a GPU.",
    )


def _basis_notes(basis: Basis | None, settings: Configuration) -> tuple[str, ...]:
    if basis == "modelled":
        return ("Times are modelled: they have no noise, and say nothing about this machine.",)
    if basis != "steps":
        return ()
    spread = f"{settings.run_spread:.0%}".replace("%", " %")
    return (
        f"Too few runs to measure their spread: a standard deviation of {spread} between runs is assumed. Two runs "
        "or more on each side give narrower intervals.",
    )


"""Median latency of each block in µs, before and after."""


def timed_in_turn(before: str | Path, after: str | Path, *, wall_s: float) -> Blocks:
    """Build both runs from the settings in their folders, and time them in alternating blocks in another process.

    Raises InputError if a folder has no settings, or is that of a modelled run.
    """
    settings = [_settings(Path(folder)) for folder in (before, after)]
    with Worker() as worker:
        blocks: Blocks = checked(worker.call(jobs.blocks_in_turn, *settings, wall_s))
    return blocks


def _settings(folder: Path) -> Settings:
    settings = settings_of(folder)
    if settings.device == "model":
        raise InputError(
            f"{folder} cannot be timed again.", "The run is modelled and cannot run here.", "Leave out --in-turn."
        )
    return settings
