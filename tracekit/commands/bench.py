"""`tracekit bench`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.analyzers.errors import InputError
from tracekit.capture.settings import DEVICES, WEIGHTS, WORKLOAD_NAMES, Device
from tracekit.commands._output import FORCE, say, verbose

if TYPE_CHECKING:
    from tracekit.bench.grid import Grid


def _names(_: click.Context, __: click.Parameter, value: str) -> list[str]:
    names = [each.strip() for each in value.split(",")]
    if not all(names):
        raise click.BadParameter(f"{value!r}: write names with commas between them, as in gpt2,llama-1b.")
    return names


def _numbers(_: click.Context, option: click.Parameter, value: str) -> list[int]:
    try:
        numbers = [int(part) for part in value.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < (0 if option.name == "seq_len" else 1):
        raise click.BadParameter(f"{value!r}: write numbers with commas between them, as in 1,8,32.")
    return numbers


@click.command()
@click.option(
    "--model",
    "models",
    callback=_names,
    required=True,
    help="Models, with commas between them, as `profile` takes them.",
)
@click.option(
    "--configs",
    callback=_names,
    default="fp32,tf32,bf16,bf16+compile",
    show_default=True,
    help="Configurations, with commas between them; the first is what the others are compared with.",
)
@click.option("--workload", type=click.Choice(WORKLOAD_NAMES), default="decode", show_default=True)
@click.option("--batch-size", callback=_numbers, default="1", show_default=True, help="One or several.")
@click.option("--seq-len", callback=_numbers, default="0", help="One or several.  [default: 512, if they fit]")
@click.option("--new-tokens", type=click.IntRange(min=1), default=32, show_default=True, help="That generate makes.")
@click.option("--text", type=Path, metavar="FILE", help="For perplexity.  [default: a sample]")
@click.option("--largest-batch", is_flag=True, help="Find the largest batch that fits, too.")
@click.option(
    "--device",
    type=click.Choice([device for device in DEVICES if device != "model"]),
    default="auto",
    help="[default: the GPU here, else the CPU]",
)
@click.option("--weights", type=click.Choice(WEIGHTS), default="random", show_default=True)
@click.option("-o", "--output", type=Path, metavar="DIRECTORY", default=Path("bench"), show_default=True)
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=120,
    show_default=True,
    metavar="S",
    help="Time to compare a configuration with the first one; with slow steps, fewer are timed.",
)
@FORCE
def command(output: Path, force: bool, **options: Any) -> None:
    """Measure configurations of models beside each other, and beside what was predicted of them.

    \b
    Configurations, joined with "+":
      fp32 tf32 fp16 bf16    types of weights and arithmetic
      eager sdpa flash       attention
      int8 int4 fp8 nf4 llm-int8 int8-dynamic   formats of weights
      compile autotune graphs static-cache fused   how a step is run
      checkpointing fused-optimizer qlora   training
      and every optimization that `predict --apply` knows

    Started again with the same folder, it measures what is missing there, and what failed.

    \b
    Files, in the output folder:
      bench.csv      a row a configuration (bench.parquet, too, with pyarrow)
      bench.html     table and charts on one page
      traces         of the first configurations, which predictions are made from

    Example: tracekit bench --model gpt2 --configs fp32,fp16,fp16+compile,fp16+graphs --batch-size 1,8
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from tracekit.bench.grid import bench
    from tracekit.reports.bench_report import to_text

    rows = bench(_grid(**options), output, say, verbose=verbose(), force=force)
    click.echo(to_text([vars(row) for row in rows]), nl=False)
    click.echo(f"\nWritten to {output}/: bench.csv, bench.html")
    if all(row.error for row in rows):
        raise InputError("Nothing was measured.", "Each configuration failed: the table says why.")


def _grid(
    models: list[str],
    configs: list[str],
    batch_size: list[int],
    seq_len: list[int],
    text: Path | None,
    largest_batch: bool,
    max_seconds: float,
    device: Device,
    **shared: Any,
) -> "Grid":
    from tracekit.bench.grid import Grid
    from tracekit.capture.packages import require
    from tracekit.capture.settings import Settings

    torch, _ = require("torch"), require("transformers")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    settings = Settings(model="", device=device, **shared)
    return Grid(models, configs, batch_size, seq_len, settings, text, largest_batch, max_seconds)
