"""Chapter: speed-ups that were predicted, then measured beside the run without them, on one H200."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean, median

from accuracy.chapter import Chapter, NothingToCompareError, Target, at_least, at_most, percent, table, within
from accuracy.speedup_causes import cause
from accuracy.speedup_rows import LOSS, ROWS, TIE, Row, cells, predicted_before, predicted_now
from analyzers.interval import Interval

_WORST = 14
_INTRO = """Each run was timed and traced on an H200 (2026-11-21, torch 2.11, transformers 5.17, torchao 0.18,
bitsandbytes 0.50.2, liger-kernel 0.8.5; random weights), all its optimizations were predicted from the trace, and only
then applied and measured as `tracekit verify` does it: in turn with the run without them, without a profiler, in a
process in which none had run. {rows} rows of {runs} runs; `benchmarks/data/h200_speedups.csv` holds them all.
Left out are {profiled} rows that could only be timed after a profiler in the same process, which slows launches and so
favours what launches less, and {failed} that could not be applied: {why}."""
_DEFINED = f"""A sign is right when prediction and measurement are on one side of 1, or the measured speed-up is within
{TIE:.0%} of 1. The first choice of a run is the one of its measured optimizations with the highest lower end (batching,
a gain in throughput, aside); it is right when nothing measured of that run is more than {TIE:.0%} faster. Recommended
is what promises 1.03 times at the lower end.""".replace("%", " %")
_NOW = """The model was mended after these measurements (host cost of Python-dispatched kernels, of quantized layers and
of static caches, among others), so the following is no test of it: it says what is left. From one step of the trace of
each run (`benchmarks/data/h200_runs`), where that was kept, and its latency beside the optimizations."""


def chapter(_: Path) -> Chapter:
    if not ROWS.is_file():
        raise NothingToCompareError(f"{ROWS.name} is not in benchmarks/data.")
    before = predicted_before()
    now = predicted_now(before)
    sections = [
        _introduction(before),
        _DEFINED,
        "### As predicted before measuring\n\n" + _summaries(before),
        _by("optimization", before, lambda row: row.optimization),
        _by("workload", before, lambda row: row.run[1]),
        "### Worst misses\n\n" + _worst(before),
        "### As the model predicts now\n\n" + _NOW + "\n\n" + _summaries(now),
        _by("optimization", now, lambda row: row.optimization),
        "Worst misses now:\n\n" + _worst(now),
        "### Every row\n\n" + _rows(before, now),
    ]
    targets = (*_targets(before, "speed-up on an H200"), *_targets(now, "the same, mended since (no test)"))
    return Chapter("Speed-up of optimizations on an H200", "\n\n".join(sections), targets)


def _targets(rows: Sequence[Row], of: str) -> tuple[Target, ...]:
    losses = [row.measured < LOSS for row in _recommended(rows)]
    return (
        at_most(f"{of}: mean error", 0.10, fmean(row.error for row in rows)),
        at_least(f"{of}: sign right", 0.98, _share(row.right_sign for row in rows)),
        at_least(f"{of}: first choice right", 0.90, _share(_first_choices(rows).values())),
        within(f"{of}: inside its interval", 0.80, 0.95, _share(row.inside for row in rows)),
        at_most(f"{of}: recommended, and a loss", 0.0, _share(losses)),
    )


def _introduction(rows: Sequence[Row]) -> str:
    stored = cells()
    failed = [cell for cell in stored if cell["error"]]
    return _INTRO.format(
        rows=len(rows),
        runs=len({row.run for row in rows}),
        profiled=sum(cell["timed"] != "unprofiled" for cell in stored),
        failed=len(failed),
        why="graphs of steps that copy from pageable memory of the host, as transformers makes an attention mask",
    )


def _summaries(rows: Sequence[Row]) -> str:
    choices, recommended = _first_choices(rows), _recommended(rows)
    losses = [row for row in recommended if row.measured < LOSS]
    lines = [
        f"- mean error {percent(fmean(row.error for row in rows), 1)} of {len(rows)} rows, "
        f"median {percent(median(row.error for row in rows), 1)}",
        f"- sign right: {percent(_share(row.right_sign for row in rows), 1)}",
        f"- first choice right: {sum(choices.values())} of {len(choices)} runs",
        f"- inside the interval: {percent(_share(row.inside for row in rows), 1)}",
        f"- recommended, and measured below {LOSS:g}: {len(losses)} of {len(recommended)}"
        + (f" ({', '.join(sorted({row.optimization for row in losses}))})" if losses else ""),
    ]
    return "\n".join(lines)


def _recommended(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.recommended]


def _first_choices(rows: Sequence[Row]) -> dict[tuple[str, ...], bool]:
    """Of runs with two optimizations at least: whether nothing is faster than the one that is predicted to be."""
    runs = defaultdict(list)
    for row in rows:
        if not row.throughput:
            runs[row.run].append(row)
    several = {run: group for run, group in runs.items() if len(group) > 1}
    return {run: _first_is_best(group) for run, group in several.items()}


def _first_is_best(group: Sequence[Row]) -> bool:
    chosen = max(group, key=lambda row: row.predicted.low)
    best = max(1.0, *(row.measured for row in group))
    held = chosen.measured if chosen.recommended else 1.0
    return held >= (1 - TIE) * best


def _by(name: str, rows: Sequence[Row], key: Callable[[Row], str]) -> str:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    found = ([name, len(group), *_shares(group)] for name, group in sorted(groups.items()))
    return table([name, "rows", "mean error", "sign right", "inside"], found, 4)


def _shares(group: Sequence[Row]) -> list[str]:
    return [
        percent(fmean(row.error for row in group), 1),
        percent(_share(row.right_sign for row in group)),
        percent(_share(row.inside for row in group)),
    ]


def _worst(rows: Sequence[Row]) -> str:
    worst = sorted(rows, key=lambda row: -row.error)[:_WORST]
    found = ([_title(row), row.optimization, _shown(row.predicted), f"{row.measured:.2f}", cause(row)] for row in worst)
    return table(["run", "optimization", "predicted", "measured", "cause"], found, 0)


def _rows(before: Sequence[Row], now: Sequence[Row]) -> str:
    later = {(row.run, row.optimization): row.predicted for row in now}
    found = (
        [
            _title(row),
            row.optimization,
            _shown(row.predicted),
            _shown(later[row.run, row.optimization]) if (row.run, row.optimization) in later else "–",
            f"{row.measured:.2f}",
            percent(row.error),
        ]
        for row in before
    )
    return table(["run", "optimization", "predicted before", "predicted now", "measured", "error"], found, 4)


def _title(row: Row) -> str:
    model, workload, batch, _, dtype, attention = row.run
    return f"{model} {workload}, {dtype}, batch {batch}{', eager' if attention == 'eager' else ''}"


def _shown(value: Interval) -> str:
    return f"{value.expected:.2f} ({value.low:.2f} to {value.high:.2f})"


def _share(flags: Iterable[bool]) -> float:
    return fmean([float(flag) for flag in flags] or [0.0])
