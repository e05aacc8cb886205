"""`tracekit sweep`."""

import os
from pathlib import Path
from typing import Any

import click

from tracekit.capture.settings import ATTENTIONS, DEVICES, DTYPES, WORKLOAD_NAMES, Device
from tracekit.commands._output import FORCE, say


def _names(_: click.Context, __: click.Parameter, value: str | None) -> list[str]:
    if value is None:
        return []
    names = [each.strip() for each in value.split(",")]
    if not all(names):
        raise click.BadParameter(f"{value!r}: separate names with commas, as in t4,l4.")
    return names


def _numbers(_: click.Context, option: click.Parameter, value: str) -> list[int]:
    numbers = [int(part) for part in value.split(",") if part.strip().isdecimal()]
    if len(numbers) != value.count(",") + 1 or min(numbers) < (0 if option.name == "seq_len" else 1):
        raise click.BadParameter(f"{value!r}: separate numbers with commas, as in 1,8,32.")
    return numbers


@click.command(short_help="Predict or measure a model over GPUs, batches and optimizations.")
@click.option("--model", required=True, help="A model, as for `profile`.")
@click.option(
    "--gpu",
    callback=_names,
    help="GPUs that `tracekit gpus` lists, separated by commas.  [with --measure: also this machine's]",
)
@click.option("--batch-size", callback=_numbers, default="1,2,4,8,16,32", show_default=True)
@click.option("--seq-len", callback=_numbers, default="0", help="One or several.  [default: 512, if they fit]")
@click.option(
    "--apply",
    callback=_names,
    default="none,half-precision,compile,cuda-graphs",
    show_default=True,
    help="Optimizations as `predict --apply` takes them, separated by commas.",
)
@click.option("--workload", type=click.Choice(WORKLOAD_NAMES), default="prefill", show_default=True)
@click.option("--new-tokens", type=click.IntRange(min=1), default=32, show_default=True, help="For generate.")
@click.option("--dtype", type=click.Choice(DTYPES), default="auto", show_default=True)
@click.option("--attention", type=click.Choice(ATTENTIONS), default="sdpa", show_default=True)
@click.option("--measure", is_flag=True, help="Also measure each point on this machine's GPU.")
@click.option(
    "--device",
    type=click.Choice([device for device in DEVICES if device != "model"]),
    default="auto",
    help="With --measure, where to measure.  [default: the GPU here]",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=600,
    show_default=True,
    metavar="S",
    help="Time limit for all measurements; points that are not reached are only modelled.",
)
@click.option("-o", "--output", type=Path, metavar="DIRECTORY", default=Path("sweep"), show_default=True)
@FORCE
def command(output: Path, measure: bool, device: Device, **options: Any) -> None:
    """Predict a model over a grid of GPUs, batch sizes, lengths and optimizations, and name its crossovers.

    Each GPU, batch size and length is modelled, and each combination of optimizations is predicted from it; nothing
    runs. --attention eager lets fused attention be one of the optimizations.

    With --measure, each point is also measured on this machine, optimizations in alternation with the unmodified run; a
    column says whether a row is modelled or measured.

    \b
    Files, in the output folder:
      sweep.html  small multiples of latency, throughput, speed-up and memory, with the crossovers in words
      sweep.csv   one row for each point

    Example: tracekit sweep --model gpt2 --gpu t4,a100 --attention eager --seq-len 128,512 --apply none,sdpa,nf4
    """
    if not measure and device != "auto":
        raise click.UsageError("--device selects where to measure: add --measure.")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from tracekit.reports.sweep_words import to_text
    from tracekit.sweeps.run_sweep import PAGE, TABLE, sweep

    rows = sweep(output=output, measure=measure, device=device, say=say, **options)
    click.echo(to_text(rows), nl=False)
    click.echo(f"\nWritten to {output}/: {PAGE}, {TABLE}")
