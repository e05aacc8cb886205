"""Chapter: speed-ups on one H200 that were first predicted and then measured beside the unmodified run, in rounds."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean, median

from accuracy.chapter import Chapter, NothingToCompareError, Target, at_least, at_most, percent, seen, table, within
from accuracy.speedup_causes import cause
from accuracy.speedup_rows import LOSS, ROWS, TIE, Row, cells, predicted_before, predicted_now
from tracekit.analyzers.core import Interval

_WORST = 14
_INTRO = """Each run was timed and traced on an H200 (2026-11-21, torch 2.11, transformers 5.17, torchao 0.18,
bitsandbytes 0.50.2, liger-kernel 0.8.5; random weights). All its optimizations were predicted from the trace, and only
then applied and measured as by `tracekit verify`: in alternation with the unmodified run, without a profiler, in a
process in which none had run. This was done in rounds: errors of a round were fixed in the model, and the next round,
with other models, shapes and batches, tested the fixes. `benchmarks/data/h200_speedups.csv` has every row. Left out are
{profiled} rows of the first round that could only be timed after a profiler in the same process, which slows launches
and so overstates the gain of fewer launches; {failed} that could not be applied; and {refused} that could be applied,
but that tracekit had refused to predict, with the reason."""
_DEFINED = f"""A sign is right when prediction and measurement are on one side of 1, or the measured speed-up is within
{TIE:.0%} of 1. Optimizations are recommended if their lower end is at least 1.03, and ranked by their expected gains
(without batching, a gain in throughput); when the rounds were predicted, tracekit ranked by lower ends. Best step
first: no measured single step of a run is more than {TIE:.0%} faster than the one ranked first. Best advice: no
measured step or combination is more than {TIE:.0%} faster than the one ranked first, or, if that is not recommended,
than the unmodified run.""".replace("%", " %")
_NOW = """The model was fixed after each round, so these rows are no test; they show the remaining errors. Predicted
from one step of each run's trace (`benchmarks/data/h200_runs`), if it was kept, and from its latency beside the
optimizations."""
_SUMMARY = (
    "rows",
    "runs",
    "mean error",
    "median",
    "sign right",
    "best step first",
    "best advice",
    "inside",
    "recommended losses",
)


def chapter(_: Path) -> Chapter:
    if not ROWS.is_file():
        raise NothingToCompareError(f"{ROWS.name} is not in benchmarks/data.")
    before = predicted_before()
    now = predicted_now(before)
    newest = _rounds(before)[-1][1]
    sections = [
        _introduction(),
        _DEFINED,
        "### As predicted before measuring\n\n" + _summaries(before),
        "The last round:",
        _by("optimization", newest, lambda row: row.optimization),
        _by("workload", newest, lambda row: row.run[1]),
        "### Worst misses of the last round\n\n" + _worst(newest),
        "### As the model predicts now\n\n" + _NOW + "\n\n" + _summaries(now),
        _by("optimization", now, lambda row: row.optimization),
        "Worst misses now:\n\n" + _worst(now),
        "### Every row\n\n" + _rows(before, now),
    ]
    targets = (*_targets(newest, "speed-up on an H200"), *seen(*_targets(now, "all rounds by today's model")))
    return Chapter("Speed-up of optimizations on an H200", "\n\n".join(sections), targets)


def _targets(rows: Sequence[Row], of: str) -> tuple[Target, ...]:
    return (
        at_most(f"{of}: mean error", 0.10, fmean(row.error for row in rows)),
        at_least(f"{of}: sign right", 0.98, _share(row.right_sign for row in rows)),
        at_least(f"{of}: best single step ranked first", 0.90, _share(_best_steps(rows))),
        within(f"{of}: inside its interval", 0.80, 0.95, _share(row.inside for row in rows)),
        at_most(f"{of}: recommended, and a loss", 0.0, len(_losses(rows)) / len(_recommended(rows))),
    )


def _introduction() -> str:
    stored = cells()
    failed = sum(bool(cell["error"]) for cell in stored)
    profiled = sum(cell["timed"] != "unprofiled" and not cell["error"] for cell in stored)
    refused = sum(bool(cell["objection"]) and not cell["error"] for cell in stored)
    return _INTRO.format(profiled=profiled, failed=failed, refused=refused)


def _rounds(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    by_round: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_round[row.round].append(row)
    return sorted(by_round.items())


def _summaries(rows: Sequence[Row]) -> str:
    return table(["round", *_SUMMARY], ([name, *_summary(group)] for name, group in _rounds(rows)), len(_SUMMARY))


def _summary(rows: Sequence[Row]) -> list[object]:
    steps, advice = _best_steps(rows), _best_advice(rows)
    return [
        len(rows),
        len({row.run for row in rows}),
        percent(fmean(row.error for row in rows), 1),
        percent(median(row.error for row in rows), 1),
        percent(_share(row.right_sign for row in rows), 1),
        f"{sum(steps)} of {len(steps)}",
        f"{sum(advice)} of {len(advice)}",
        percent(_share(row.inside for row in rows), 1),
        f"{len(_losses(rows))} of {len(_recommended(rows))}",
    ]


def _recommended(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.recommended]


def _losses(rows: Sequence[Row]) -> list[Row]:
    return [row for row in _recommended(rows) if row.measured < LOSS]


def _best_steps(rows: Sequence[Row]) -> list[bool]:
    """Return, for each run with at least two single steps, whether the one ranked first is the fastest."""
    return [_first(group).measured >= (1 - TIE) * _best(group) for group in _of_runs(row for row in rows if row.single)]


def _best_advice(rows: Sequence[Row]) -> list[bool]:
    return [_followed(group) >= (1 - TIE) * max(1.0, _best(group)) for group in _of_runs(rows)]


def _followed(group: Sequence[Row]) -> float:
    """Return the gain by the first recommendation."""
    first = _first(group)
    return first.measured if first.recommended else 1.0


def _of_runs(rows: Iterable[Row]) -> list[list[Row]]:
    """Group the rows about latency by run. Runs with only one row are left out."""
    runs = defaultdict(list)
    for row in rows:
        if not row.throughput:
            runs[row.round, *row.run].append(row)
    return [group for group in runs.values() if len(group) > 1]


def _first(group: Sequence[Row]) -> Row:
    return max(group, key=lambda row: (row.recommended, row.predicted.expected))


def _best(group: Sequence[Row]) -> float:
    return max(row.measured for row in group)


def _by(name: str, rows: Sequence[Row], key: Callable[[Row], str]) -> str:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    lines = ([name, len(group), *_shares(group)] for name, group in sorted(groups.items()))
    return table([name, "rows", "mean error", "sign right", "inside"], lines, 4)


def _shares(group: Sequence[Row]) -> list[str]:
    return [
        percent(fmean(row.error for row in group), 1),
        percent(_share(row.right_sign for row in group)),
        percent(_share(row.inside for row in group)),
    ]


def _worst(rows: Sequence[Row]) -> str:
    worst = sorted(rows, key=lambda row: -row.error)[:_WORST]
    lines = ([_title(row), row.optimization, _shown(row.predicted), f"{row.measured:.2f}", cause(row)] for row in worst)
    return table(["run", "optimization", "predicted", "measured", "cause"], lines, 0)


def _rows(before: Sequence[Row], now: Sequence[Row]) -> str:
    later = {(row.round, row.run, row.optimization): row.predicted for row in now}
    lines = (
        [
            row.round,
            _title(row),
            row.optimization,
            _shown(row.predicted),
            _shown(later[key]) if (key := (row.round, row.run, row.optimization)) in later else "–",
            f"{row.measured:.2f}",
            percent(row.error),
        ]
        for row in before
    )
    return table(["round", "run", "optimization", "predicted before", "predicted now", "measured", "error"], lines, 4)


def _title(row: Row) -> str:
    model, workload, batch, tokens, dtype, attention = row.run
    length = f", {tokens} tokens" if tokens not in ("0", "512") else ""
    return f"{model} {workload}, {dtype}, batch {batch}{length}{', eager' if attention == 'eager' else ''}"


def _shown(value: Interval) -> str:
    return f"{value.expected:.2f} ({value.low:.2f} to {value.high:.2f})"


def _share(flags: Iterable[bool]) -> float:
    return fmean([float(flag) for flag in flags] or [0.0])
