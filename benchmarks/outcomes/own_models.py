"""Chapter on models that are not bundled: shares of their layers, and kernels that they run, predicted and measured."""

from pathlib import Path

import pandas as pd
import sequences
from layer_shares.compare import LIMIT, compared

from tracekit.reports.words import percent

_SHARES = Path(__file__).parents[1] / "layer_shares"
_SETS = {
    "first": ("predictions.csv", "h100.csv"),
    "second": ("predictions_second.csv", "h100_second.csv"),
    "third": ("predictions_third.csv", "h100_third.csv"),
}
_INTRO = """## Models that are not bundled

Layer shares of fifteen runs on an H100 that were not used for fitting, predicted and committed before they were
recorded ([errors and their fixes](own_code.md#modelled-and-measured-shares-of-layers)). Step times are busy times."""
_KERNELS = """### Kernels of sequences and images

Scans over a dimension that is not the last, batch norms in training and recurrent layers on an H100
(`benchmarks/sequences.py`): modelled time ÷ measured time, with the model before these measurements, and with today's
model."""


def chapter() -> str:
    return "\n\n".join([_INTRO, _shares(), _KERNELS, _kernels()])


def _shares() -> str:
    lines = [
        "| set | run | layers within 5 points | furthest off | predicted | measured | step, predicted | measured |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for name, files in _SETS.items():
        predicted, measured = (pd.read_csv(_SHARES / file) for file in files)
        rows = compared(measured, predicted)
        steps = [_step_ms(each) for each in (predicted, measured)]
        for run in measured["run"].unique():
            lines.append(_row(name, run, rows[rows["run"] == run], *(each[run] for each in steps)))
    return "\n".join(lines)


def _row(name: str, run: str, rows: pd.DataFrame, predicted_ms: float, measured_ms: float) -> str:
    off = rows["points"].abs()
    worst = rows.loc[off.idxmax()]
    shares = " | ".join(percent(worst[f"share_{side}"]) for side in ("predicted", "measured"))
    within = f"{(off <= 100 * LIMIT).sum()} of {len(rows)}"
    return (
        f"| {name} | {run} | {within} | `{worst['layer']}` | {shares} | {predicted_ms:.2f} ms | {measured_ms:.2f} ms |"
    )


def _step_ms(shares: pd.DataFrame) -> "pd.Series[float]":
    """Return the busy time of a step of each run."""
    largest = shares.loc[shares.groupby("run")["busy_us"].idxmax()].set_index("run")
    return largest["busy_us"] / largest["share"] / 1e3


def _kernels() -> str:
    before, today = (sequences.summary(rows) for rows in (pd.read_csv(sequences.BEFORE), sequences.modelled()))
    lines = ["| kernels | calls | before: median | least to most | today: median | least to most |"]
    lines.append("|---|---|---|---|---|---|")
    for was, now in zip(before.itertuples(), today.itertuples(), strict=True):
        told = " | ".join(f"{each.median:.2f} | {each.min:.2f} to {each.max:.2f}" for each in (was, now))
        lines.append(f"| {was.label.replace('_', ' ')}, `{was.op}` | {was.size} | {told} |")
    return "\n".join(lines)
