"""Results of `tracekit bench` beside published ones of the same configurations."""

import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import table
from tracekit.analyzers.core import Interval
from tracekit.measure import Row, from_csv
from tracekit.reports.measure.bench import largest_batch
from tracekit.reports.words import ABSENT, duration, model, percent, quantity, significant, speedup, times

_ROOT = Path(__file__).parents[2]
_DATA = _ROOT / "benchmarks" / "data"
_STUDIES = _ROOT / "examples" / "studies"
_INTRODUCTION = """## Studies

The studies of `examples/studies`, measured by `tracekit bench`: speed-ups are relative to the first row of a table.
*Published*: tokens per second, and the speed-up relative to the same first row, on another GPU (in brackets) and with
other versions."""

Published = Mapping[str, Mapping[tuple[str, str], float]]
_TABLE = _DATA / "h100_sweep_gpt2.csv"
_SWEEP = """## A measured sweep

`tracekit bench --model gpt2 --measure --batch-size 1,8 --seq-len 128,512 --apply none,half-precision` on an H100, fp32,
prefill ([how](bench.md#measured-beside-the-model)). Each point was predicted before it was measured; intervals are
those of the predicted speed-ups."""
_SWEEP_HEAD = (
    "| batch | tokens | | step, predicted | measured | speed-up, predicted | measured | memory, predicted | measured |"
)
_POINT = ["batch_size", "seq_len", "apply"]


def chapter() -> str:
    benches = [of_file(path) for path in sorted(_DATA.glob("h200_bench_*.csv"))]
    return "\n\n".join([_INTRODUCTION, *benches])


def of_file(path: Path) -> str:
    published = _study("published.py")
    return bench(from_csv(path), {gpu: published[gpu] for gpu in ("A100", "T4")})


def bench(rows: Sequence[Row], published: Published) -> str:
    first = rows[0]
    columns = {
        "predicted": [_predicted(row) for row in rows],
        "measured": [times(row.speedup, row.speedup) if row.speedup else ABSENT for row in rows],
        "published": [_there(row, published) for row in rows],
        "step": [duration(row.latency_us) if row.latency_us else ABSENT for row in rows],
        f"{first.unit}/s": [significant(row.items_per_s) if row.items_per_s else ABSENT for row in rows],
        "memory": [quantity(row.peak_memory_bytes, "B") if row.peak_memory_bytes else ABSENT for row in rows],
        "GPU": [percent(row.gpu_utilization) if row.gpu_utilization is not None else ABSENT for row in rows],
        "largest batch": [largest_batch(row.largest_batch, row.predicted_largest_batch) for row in rows],
        "perplexity": [
            f"{row.perplexity:,.0f}" if row.perplexity and row.weights != "random" else ABSENT for row in rows
        ],
    }
    said = {name: cells for name, cells in columns.items() if set(cells) != {ABSENT}}
    body = zip([row.config for row in rows], *said.values(), strict=True)
    run = f"{model(first.model)}, {first.workload}, batch {first.batch_size}, {first.seq_len} tokens"
    title = f"### {run}, over {first.config}"
    failed = [f"{row.config}: {row.error}" for row in rows if row.error]
    return "\n\n".join([title, table(["configuration", *said], body, len(said)), *failed])


def _predicted(row: Row) -> str:
    ends = (row.predicted_low, row.predicted, row.predicted_high)
    return ABSENT if None in ends else speedup(Interval(*(float(end or 0) for end in ends)))


def _there(row: Row, published: Published) -> str:
    """99.6/s, 1.04× (A100), of tokens generated; the order of a configuration's parts does not matter."""
    if row.workload == "train":
        return ABSENT
    gains = []
    for gpu, numbers in published.items():
        rates = {(name, frozenset(config.split("+"))): rate for (name, config), rate in numbers.items()}
        rate, first = (rates.get((row.model, frozenset(name.split("+")))) for name in (row.config, row.first))
        if rate:
            gain = f", {times(rate / first, rate / first)}" if first and row.config != row.first else ""
            gains.append(f"{rate:g}/s{gain} ({gpu})")
    return "; ".join(gains) or ABSENT


def _study(name: str) -> dict[str, Any]:
    """Load the definitions of a study, which imports its neighbours."""
    sys.path.insert(0, str(_STUDIES))
    try:
        return runpy.run_path(str(_STUDIES / name))
    finally:
        sys.path.remove(str(_STUDIES))


def sweep() -> str:
    points = pd.read_csv(_TABLE)
    sides = [points[points["source"] == source] for source in ("modelled", "measured")]
    both = sides[0].merge(sides[1], on=_POINT, suffixes=("", "_measured"))
    lines = [_SWEEP_HEAD, "|---|---|---|---|---|---|---|---|---|"]
    return "\n".join([_SWEEP, "", *lines, *(_sweep_row(row) for _, row in both.iterrows())])


def _sweep_row(row: "pd.Series[object]") -> str:
    steps = " | ".join(duration(row[f"latency_us{side}"]) for side in ("", "_measured"))
    changed = row["apply"] != "none"
    interval = f"{row['speedup']:.2f} ({row['speedup_low']:.2f} to {row['speedup_high']:.2f})" if changed else "–"
    gain = f"{row['speedup_measured']:.2f}" if changed else "–"
    memory = " | ".join(quantity(row[f"memory_bytes{side}"], "B") for side in ("", "_measured"))
    return f"| {row['batch_size']} | {row['seq_len']} | {row['apply']} | {steps} | {interval} | {gain} | {memory} |"
