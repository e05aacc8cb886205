"""Writes docs/accuracy.md from committed rows: blind rounds, speed-ups on an H200, kernel times, published results."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean, mean, median

import pandas as pd

from benchmarks import percent, table
from benchmarks.accuracy import kernels, published_page
from benchmarks.accuracy.speedup_rows import LOSS, cells, predicted_before
from benchmarks.blind.joined import TIE, Row, advised, published, rounds
from benchmarks.fitting.scripts import score

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
_DATA = Path(__file__).parents[1] / "data"
_WORST = 5
_JUDGED = ("rows", "mean error", "median error", "sign right", "inside", "median high ÷ low", "score")
_HEAD = """# How accurate predictions are

Written by `python -m benchmarks accuracy.page` from committed rows; do not edit. An error is |predicted ÷ measured −
1| of a speed-up. *Inside*: the measured value lies in the predicted interval. *High ÷ low* is how wide the interval
is: a wide one is easily hit. *Score* is the interval score of the log speed-up: the width, and 13 times what is missed
([against an earlier version](diagnosis.md#interval-score)). *Sign right*: both are gains or both are losses, or the
measured change is below 3 %."""
_BLIND = """## Blind rounds

Seven rounds on models, shapes and machines that constants were not fitted to: a seed draws models, workloads and
optimizations from [published configurations](../benchmarks/blind/models.toml); the unmodified runs are traced and
timed; the predictions are committed; only then the optimizations are applied with plain PyTorch and timed in
alternation with the unmodified run ([how](../benchmarks/README.md#blind-rounds)). The model is changed only after a
round, and no prediction was changed after its measurement. Every row: [rounds.csv](../benchmarks/blind/rounds.csv).
Predictions from captures (batch, ranges and the latency without a profiler are known):"""
_HALF_TRUTHS = """What these numbers do not say:

- The rounds are not equal. The first had {first_inside} inside, the last {last_inside}; all seven together have the
  row *all*. Only the last round was predicted with most of what the others taught.
- {dropped} of round 03 are not in its row: the prediction of one run crashed, and was mended after the measurement.
- An eighth round was drawn, but never measured for lack of machines. Its draw was removed, and nothing was predicted.
- {refused} of the drawn rows were refused although the optimization could be measured, and {failed} could not be
  measured.
- Rounds 06 and 07 alone were predicted a second time with the latency that the unmodified run had during the
  measurement (*beside*). This removes the drift of the host, which an optimization's user sees.
- All rounds were predicted again by later models to fit the widths of intervals. The widths of `timed` and `profiled`
  (`intervals.toml`) were fitted with all seven rounds, so that the last one is no test of the widths that are shipped
  today."""
_BEST = """### Is the best optimization ranked first?

The recommended row with the largest expected gain of a run is the best measured one (within 3 %; without batching) in
**{right} of {runs}** runs of all rounds. A row drawn at random among the run's measured ones and no change at all
would be in {chance:.0f}. In the last round it is {last_right} of {last_runs}, and {last_chance:.0f} by chance: most
runs have only two or three measured rows."""
_H200 = """## Speed-ups on an H200

{rows} optimizations of {runs} runs, predicted from the trace of the run and then measured on one H200 (2026-11-21) in
three rounds, as `tracekit verify` measures. They are not blind: constants of the host and of kernels come from the
same machine, and errors of a round were mended before the next, which has other models, shapes and batches. Left out
are {profiled} rows that could only be timed after a profiler in the same process, {failed} that could not be applied,
and {refused} that was refused. Every row: [h200_speedups.csv](../benchmarks/data/h200_speedups.csv). As predicted
before measuring:"""
_NOW = """The traces of {traces} of these runs are kept, and a test predicts their rows with today's model, which has
seen them: it guards the fit, and says nothing of other runs."""
_KERNELS = """## Kernel time

Modelled against measured time of {calls:,} op calls on an H200
([h200_kernels.csv](../benchmarks/data/h200_kernels.csv)), which constants were fitted to. *Other half*: predicted
with constants fitted on the other half of the calls, for kernels that move memory and convolutions. The mean over
these classes is {mean}."""
_HELD = """GPUs that no constant was fitted to, with public kernels of each (means over classes of ops; all of them:
{measured} with sustained rates measured by `tracekit calibrate`, {sheet} from the data sheet alone):"""
_WHOLE = """Sum of the kernels of one step of {steps} traces of `examples/traces`: mean error {error}, worst {worst}."""
_PUBLISHED = """## Published speed-ups

{rows} speed-ups that others published for {gpus} GPUs, modelled without running there: mean error {error}, sign right
in {sign}, inside in {inside}, median high ÷ low {width:.2f}. The host is unknown but for a range. Constants of
compiled launches and of the hosts were chosen with these rows in view, so they are no test. Rows as last compared:
[published.csv](../benchmarks/data/published.csv); two models are discussed in [published](published.md)."""


def text() -> str:
    parts = [_HEAD, *_blind(), *_on_h200(), *_of_kernels(), _of_published()]
    return "\n\n".join(parts) + "\n"


def _blind() -> list[str]:
    by_round = rounds()
    drawn = [row for rows in by_round.values() for row in rows]
    captures = {name: _compared(rows, "capture") for name, rows in by_round.items()}
    every = [row for rows in captures.values() for row in rows]
    lines = [(name, rows[0].machine.upper(), *_judged(rows)) for name, rows in captures.items()]
    lines += [("**all**", "", *_judged(every)), ("all, from plain traces", "", *_judged(_compared(drawn, "trace")))]
    lines += [("06 and 07, beside", "", *_judged(_compared(drawn, "beside")))]
    return [
        _BLIND,
        table(("round", "GPU", *_JUDGED), lines, len(_JUDGED)),
        _truths(drawn, list(captures.values())),
        "By optimization, all rounds:",
        table(("optimization", *_JUDGED), _by(every, lambda row: row.kind), len(_JUDGED)),
        "By kind of run:",
        table(("kind of run", *_JUDGED), _by(every, lambda row: row.run.workload), len(_JUDGED)),
        f"The worst {_WORST} of all rounds:",
        _worst(every),
        _best_first(by_round),
    ]


def _compared(rows: Iterable[Row], evidence: str) -> list[Row]:
    return [row for row in rows if row.evidence == evidence and row.compared]


def _judged(rows: Sequence[Row]) -> list[str]:
    errors = [row.error for row in rows]
    shares = mean(errors), median(errors), fmean(row.right_sign for row in rows), fmean(row.inside for row in rows)
    scores = [score(row.low or 0.0, row.high or 0.0, row.measured or 0.0) for row in rows]
    return [str(len(rows)), *map(percent, shares), f"{median(row.width for row in rows):.2f}", f"{fmean(scores):.2f}"]


def _by(rows: Sequence[Row], key: Callable[[Row], str]) -> list[tuple[str, ...]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return [(name, *_judged(group)) for name, group in sorted(groups.items(), key=lambda item: -len(item[1]))]


def _truths(drawn: Sequence[Row], captures: Sequence[Sequence[Row]]) -> str:
    asked = [row for row in drawn if row.evidence == "capture"]
    crashed = {(row["run"], row["optimization"]) for row in published() if row["failed"] == "the prediction crashed"}
    inside = [percent(fmean(row.inside for row in rows)) for rows in (captures[0], captures[-1])]
    return _HALF_TRUTHS.format(
        first_inside=inside[0],
        last_inside=inside[1],
        dropped=f"Three rows, {len(crashed)} of which were measured,",
        refused=sum(row.expected is None and row.measured is not None for row in asked) - len(crashed),
        failed=sum(row.measured is None for row in asked),
    )


def _best_first(by_round: dict[str, list[Row]]) -> str:
    counts = [_ranked([row for row in rows if row.evidence == "capture"]) for rows in by_round.values()]
    right, runs, chance = (sum(each[at] for each in counts) for at in range(3))
    last = counts[-1]
    names = dict(zip(("last_right", "last_runs", "last_chance"), last, strict=True))
    return _BEST.format(right=right, runs=runs, chance=chance, **names)


def _ranked(rows: Sequence[Row]) -> tuple[int, int, float]:
    """Return in how many runs the best row is ranked first, of how many, and what drawing at random would give."""
    verdicts = [each.ranked for each in advised(rows) if each.ranked is not None]
    return sum(verdicts), len(verdicts), sum(map(_chance, _runs(rows)))


def _runs(rows: Sequence[Row]) -> list[list[Row]]:
    """Group the rows by run as `advised` does: only runs with a prediction."""
    measured = [row for row in rows if row.measured is not None and row.kind != "batching"]
    measured.sort(key=lambda row: (row.machine, row.run.name))
    groups = [list(group) for _, group in groupby(measured, key=lambda row: (row.machine, row.run.name))]
    return [group for group in groups if any(row.low is not None for row in group)]


def _chance(group: Sequence[Row]) -> float:
    """Return the chance that one of the measured rows, drawn at random, is as good as the best."""
    gains = [row.measured or 0.0 for row in group]
    return sum(gain >= max(1.0, *gains) / (1 + TIE) for gain in gains) / len(gains)


def _worst(rows: Sequence[Row]) -> str:
    worst = sorted(rows, key=lambda row: -abs(math.log(row.ratio)))[:_WORST]
    lines = [
        (
            f"{row.run.model} {row.run.workload}, batch {row.run.batch}, {row.run.dtype}",
            row.optimization,
            f"{row.expected:.2f} ({row.low:.2f} to {row.high:.2f})",
            f"{row.measured:.2f}",
        )
        for row in worst
    ]
    return table(("run", "optimization", "predicted", "measured"), lines, 2)


def _on_h200() -> list[str]:
    rows, stored = predicted_before(), cells()
    introduction = _H200.format(
        rows=len(rows),
        runs=len({row.run for row in rows}),
        failed=sum(bool(cell["error"]) for cell in stored),
        profiled=sum(cell["timed"] != "unprofiled" and not cell["error"] for cell in stored),
        refused=sum(bool(cell["objection"]) and not cell["error"] for cell in stored),
    )
    lines = [
        (name, *_h200_shares([row for row in rows if row.round == name])) for name in sorted({r.round for r in rows})
    ]
    lines.append(("**all**", *_h200_shares(rows)))
    head = ("round", *_JUDGED, "recommended, and a loss")
    return [
        introduction,
        table(head, lines, len(head) - 1),
        _NOW.format(traces=len(list((_DATA / "h200_runs").iterdir()))),
    ]


def _h200_shares(rows: Sequence) -> list[str]:
    errors = [row.error for row in rows]
    shares = mean(errors), median(errors), fmean(row.right_sign for row in rows), fmean(row.inside for row in rows)
    recommended = [row for row in rows if row.recommended]
    losses = sum(row.measured < LOSS for row in recommended)
    width = median(row.predicted.high / row.predicted.low for row in rows)
    scored = fmean(score(row.predicted.low, row.predicted.high, row.measured) for row in rows)
    told = f"{width:.2f}", f"{scored:.2f}", f"{losses} of {len(recommended)}"
    return [str(len(rows)), *map(percent, shares), *told]


def _of_kernels() -> list[str]:
    mine = kernels.of_own()
    known = pd.read_csv(_DATA / "held_out.csv")
    held = known.groupby("gpu")[["calibrated", "data_sheet"]].agg(["mean", "count"])
    measured, sheet = (percent(known[name].mean(), 1) for name in ("calibrated", "data_sheet"))
    lines = [
        (
            gpu,
            int(row["calibrated"]["count"]),
            *(percent(row[name]["mean"], 1) for name in ("calibrated", "data_sheet")),
        )
        for gpu, row in held.iterrows()
    ]
    errors = {name: abs(modelled / found - 1) for name, modelled, found in kernels.steps()}
    worst = max(errors, key=lambda name: errors[name])
    return [
        _KERNELS.format(calls=mine.calls, mean=percent(mine.mean, 1)),
        mine.table,
        _HELD.format(measured=measured, sheet=sheet),
        table(("GPU held out", "classes of ops", "rates measured", "data sheet only"), lines, 3),
        _WHOLE.format(
            steps=len(errors), error=percent(fmean(errors.values()), 1), worst=f"{percent(errors[worst])} ({worst})"
        ),
    ]


def _of_published() -> str:
    rows = [row for row in published_page.rows() if row["kind"] == "speed-up"]
    told = [[float(row[name]) for name in ("published", "low", "modelled", "high")] for row in rows]
    signs = [abs(gain - 1) <= TIE + 1e-9 or (gain > 1) == (expected > 1) for gain, _, expected, _ in told]
    return _PUBLISHED.format(
        rows=len(rows),
        gpus=len({row["run"].partition(":")[0] for row in rows}),
        error=percent(fmean(abs(expected / gain - 1) for gain, _, expected, _ in told), 1),
        sign=percent(fmean(signs)),
        inside=percent(fmean(low <= gain <= high for gain, low, _, high in told)),
        width=median(high / low for _, low, _, high in told),
    )


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
