"""`tracekit sweep`."""

import os
from pathlib import Path
from typing import Any

import click

from tracekit.capture.settings import ATTENTIONS, DTYPES, WORKLOAD_NAMES
from tracekit.commands._output import FORCE, say


def _names(_: click.Context, __: click.Parameter, value: str) -> list[str]:
    names = [each.strip() for each in value.split(",")]
    if not all(names):
        raise click.BadParameter(f"{value!r}: separate names with commas, as in t4,l4.")
    return names


def _numbers(_: click.Context, option: click.Parameter, value: str) -> list[int]:
    numbers = [int(part) for part in value.split(",") if part.strip().isdecimal()]
    if len(numbers) != value.count(",") + 1 or min(numbers) < (0 if option.name == "seq_len" else 1):
        raise click.BadParameter(f"{value!r}: separate numbers with commas, as in 1,8,32.")
    return numbers


@click.command(short_help="Predict a model over GPUs, batch sizes and optimizations.")
@click.option("--model", required=True, help="A model, as for `profile`.")
@click.option("--gpu", callback=_names, required=True, help="GPUs that `tracekit gpus` lists, separated by commas.")
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
@click.option("-o", "--output", type=Path, metavar="DIRECTORY", default=Path("sweep"), show_default=True)
@FORCE
def command(output: Path, **options: Any) -> None:
    """Predict a model over a grid of GPUs, batch sizes, lengths and optimizations, and name where it flips.

    Nothing runs: each GPU, batch size and length is modelled, and each combination of optimizations is predicted from
    it. --attention eager lets fused attention be one of the optimizations.

    \b
    Files, in the output folder:
      sweep.html  small multiples of latency, throughput, speed-up and memory, with the crossovers in words
      sweep.csv   one row for each point

    Example: tracekit sweep --model gpt2 --gpu t4,a100 --attention eager --seq-len 128,512 --apply none,sdpa,nf4
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from tracekit.reports.sweep_words import to_text
    from tracekit.sweeps.run_sweep import PAGE, TABLE, sweep

    rows = sweep(output=output, say=say, **options)
    click.echo(to_text(rows), nl=False)
    click.echo(f"\nWritten to {output}/: {PAGE}, {TABLE}")
