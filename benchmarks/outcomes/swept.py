"""Chapter on a sweep that was measured: each point beside its prediction."""

from pathlib import Path

import pandas as pd

from tracekit.reports.words import duration, quantity

_TABLE = Path(__file__).parents[1] / "data" / "h100_sweep_gpt2.csv"
_INTRO = """## A measured sweep

`tracekit bench --model gpt2 --measure --batch-size 1,8 --seq-len 128,512 --apply none,half-precision` on an H100, fp32,
prefill ([how](bench.md#measured-beside-the-model)). Each point was predicted before it was measured; intervals are
those of the predicted speed-ups."""
_HEAD = (
    "| batch | tokens | | step, predicted | measured | speed-up, predicted | measured | memory, predicted | measured |"
)
_POINT = ["batch_size", "seq_len", "apply"]


def chapter() -> str:
    points = pd.read_csv(_TABLE)
    sides = [points[points["source"] == source] for source in ("modelled", "measured")]
    both = sides[0].merge(sides[1], on=_POINT, suffixes=("", "_measured"))
    lines = [_HEAD, "|---|---|---|---|---|---|---|---|---|"]
    return "\n".join([_INTRO, "", *lines, *(_row(row) for _, row in both.iterrows())])


def _row(row: "pd.Series[object]") -> str:
    steps = " | ".join(duration(row[f"latency_us{side}"]) for side in ("", "_measured"))
    changed = row["apply"] != "none"
    interval = f"{row['speedup']:.2f} ({row['speedup_low']:.2f} to {row['speedup_high']:.2f})" if changed else "–"
    gain = f"{row['speedup_measured']:.2f}" if changed else "–"
    memory = " | ".join(quantity(row[f"memory_bytes{side}"], "B") for side in ("", "_measured"))
    return f"| {row['batch_size']} | {row['seq_len']} | {row['apply']} | {steps} | {interval} | {gain} | {memory} |"
