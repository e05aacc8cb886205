"""`tracekit bench`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.analyzers.errors import InputError
from tracekit.capture.settings import DEVICES, WEIGHTS, WORKLOAD_NAMES, Device
from tracekit.commands._output import FORCE, say, verbose

if TYPE_CHECKING:
    from tracekit.bench.run_grid import Grid


def _names(_: click.Context, __: click.Parameter, value: str) -> list[str]:
    names = [each.strip() for each in value.split(",")]
    if not all(names):
        raise click.BadParameter(f"{value!r}: separate names with commas, as in gpt2,llama-1b.")
    return names


def _numbers(_: click.Context, option: click.Parameter, value: str) -> list[int]:
    try:
        numbers = [int(part) for part in value.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < (0 if option.name == "seq_len" else 1):
        raise click.BadParameter(f"{value!r}: separate numbers with commas, as in 1,8,32.")
    return numbers


@click.command(short_help="Measure configurations of models beside their predictions.")
@click.option(
    "--model",
    "models",
    callback=_names,
    required=True,
    help="Models, separated by commas, as for `profile`.",
)
@click.option(
    "--configs",
    callback=_names,
    default="fp32,tf32,bf16,bf16+compile",
    show_default=True,
    help="Configurations, separated by commas; the others are compared with the first.",
)
@click.option("--workload", type=click.Choice(WORKLOAD_NAMES), default="decode", show_default=True)
@click.option("--batch-size", callback=_numbers, default="1", show_default=True, help="One or several.")
@click.option("--seq-len", callback=_numbers, default="0", help="One or several.  [default: 512, if they fit]")
@click.option("--new-tokens", type=click.IntRange(min=1), default=32, show_default=True, help="For generate.")
@click.option("--text", type=Path, metavar="FILE", help="Text for perplexity.  [default: a sample]")
@click.option("--calibration", type=Path, metavar="FILE", help="Text for awq and smoothquant.  [default: a sample]")
@click.option("--largest-batch", is_flag=True, help="Also find the largest batch that fits.")
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
    help="Time limit for comparing one configuration with the first; slow steps are timed fewer times.",
)
@click.option("--panels", is_flag=True, help="Also draw the four panels of each run as one figure.")
@FORCE
def command(output: Path, force: bool, panels: bool, **options: Any) -> None:
    """Measure configurations of models, and compare them with each other and with their predictions.

    \b
    Configurations, joined with "+":
      fp32 tf32 fp16 bf16    precision of weights and arithmetic
      eager sdpa flash       attention
      int8 int4 fp8 nf4 llm-int8 int8-dynamic   weight formats
      awq smoothquant        int4 weights, int8 arithmetic: calibrated with a text
      compile autotune graphs static-cache fused   how a step is run
      checkpointing fused-optimizer qlora   training
      and every optimization that `predict --apply` knows

    With an existing folder, only configurations that are missing or failed are measured.

    \b
    Files, in the output folder:
      bench.csv      one row for each configuration (also bench.parquet, with pyarrow)
      bench.html     tables and charts on one page
      panels.svg     with --panels: speed-up, memory, utilization, and accuracy against speed in one figure
      traces         of the first configurations, from which predictions are made

    Example: tracekit bench --model gpt2 --configs fp32,fp16,fp16+compile,fp16+graphs --batch-size 1,8
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from tracekit.bench.run_grid import PANELS, bench
    from tracekit.reports.bench_figure import figure
    from tracekit.reports.bench_report import to_text
    from tracekit.reports.files import write_atomically

    rows = bench(_grid(**options), output, say, verbose=verbose(), force=force)
    values = [vars(row) for row in rows]
    click.echo(to_text(values), nl=False)
    if panels:
        write_atomically(output / PANELS, figure(values))
    click.echo(f"\nWritten to {output}/: bench.csv, bench.html" + (f", {PANELS}" if panels else ""))
    if all(row.error for row in rows):
        raise InputError("Nothing was measured.", "Every configuration failed; the table says why.")


def _grid(
    models: list[str],
    configs: list[str],
    batch_size: list[int],
    seq_len: list[int],
    text: Path | None,
    calibration: Path | None,
    largest_batch: bool,
    max_seconds: float,
    device: Device,
    **shared: Any,
) -> "Grid":
    from tracekit.bench.run_grid import Grid
    from tracekit.capture.packages import require
    from tracekit.capture.settings import Settings

    torch, _ = require("torch"), require("transformers")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    settings = Settings(model="", device=device, **shared)
    return Grid(models, configs, batch_size, seq_len, settings, text, calibration, largest_batch, max_seconds)
