"""`tracekit bench`."""

import os
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import click

from tracekit.analyzers.core import InputError
from tracekit.cli._options import EVAL, FORCE, say, verbose
from tracekit.cli._outputs import folder_option
from tracekit.run import ATTENTIONS, DEVICES, DTYPES, WEIGHTS, WORKLOAD_NAMES

_MEASURED_ONLY = ("evaluation", "calibration", "train_steps", "largest_batch", "panels")


class Several(click.ParamType):
    """Names or whole numbers, separated by commas."""

    name = "list"

    def __init__(self, known: tuple[str, ...] = (), *, least: int | None = None):
        self.known, self.least = known, least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        if isinstance(value, list):
            return value
        parts = [part.strip() for part in value.split(",")]
        if self.least is None:
            if not all(parts):
                self.fail(f"{value!r}: separate names with commas, as in gpt2,llama-1b.", param, ctx)
            for part in parts:
                self.known and click.Choice(self.known).convert(part, param, ctx)
            return parts
        if not all(part.isdecimal() and int(part) >= self.least for part in parts):
            self.fail(f"{value!r}: separate numbers with commas, as in 1,8,32.", param, ctx)
        return [int(part) for part in parts]


@click.command(short_help="Measure a grid of runs here, or model it for GPUs.")
@click.option("--model", "models", type=Several(), metavar="A,B", required=True, help="Models, as for `profile`.")
@click.option("--gpu", "gpus", type=Several(), metavar="A,B", help="GPUs to model the grid for; nothing runs.")
@click.option("--measure", is_flag=True, help="Measure each point beside its model, of --gpu or of the GPU here.")
@click.option("--workload", type=click.Choice(WORKLOAD_NAMES), default="prefill", show_default=True)
@click.option(
    "--dtype",
    "dtypes",
    type=Several(DTYPES),
    metavar="A,B",
    default="auto",
    show_default=True,
    help="As for `profile`.",
)
@click.option("--attention", "attentions", type=Several(ATTENTIONS), metavar="A,B", default="sdpa", show_default=True)
@click.option(
    "--batch-size", "batches", type=Several(least=1), metavar="N,M", help="[default: 1; modelled 1,2,4,8,16,32]"
)
@click.option(
    "--seq-len", "lengths", type=Several(least=0), metavar="N,M", default="0", help="[default: 512, if they fit]"
)
@click.option("--new-tokens", type=click.IntRange(min=1), default=32, show_default=True, help="For generate.")
@click.option(
    "--apply",
    type=Several(),
    metavar="A+B,C",
    default="none,half-precision,compile,cuda-graphs",
    show_default=True,
    help="Optimizations as `predict --apply` takes them; measured also lora, qlora, qat.",
)
@click.option("--eval", "evaluation", metavar="WHAT", default="", help=f"{EVAL}  [default: a sample]")
@click.option("--calibration", type=Path, metavar="FILE", help="Text that calibrates and trains.  [default: a sample]")
@click.option(
    "--train-steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="Train lora, qlora and qat this long on that text, then measure them in another workload than train.",
)
@click.option("--largest-batch", is_flag=True, help="Also find the largest batch that fits.")
@click.option(
    "--device",
    type=click.Choice([device for device in DEVICES if device != "model"]),
    default="auto",
    help="Where to measure.  [default: the GPU here, else the CPU]",
)
@click.option("--weights", type=click.Choice(WEIGHTS), default="random", show_default=True)
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=120,
    show_default=True,
    metavar="S",
    help="Time limit for comparing one point with the first; slow steps are timed fewer times.",
)
@click.option("--panels", is_flag=True, help="Also draw the four panels of each run as one figure.")
@folder_option(default="bench", show_default=True)
@FORCE
def command(gpus: list[str] | None, measure: bool, **asked: Any) -> None:
    """Measure or model a grid: models, GPUs, dtypes, attentions, batch sizes, lengths and optimizations.

    Without --gpu, each point is measured on this machine: time, memory, the outputs' difference from the first point,
    quality (of trained weights); and compared with its prediction. With an existing folder, only missing or failed
    points are measured.

    With --gpu, each GPU, batch size and length is modelled, each combination of optimizations is predicted from it, and
    the text names the crossovers: from which batch or length an optimization pays. With --measure, each point is also
    measured on this machine, in alternation with the unmodified run.

    \b
    Files, in the output folder:
      measured:  bench.csv, bench.html (also bench.parquet, with pyarrow), traces/ of the first points,
                 panels.svg with --panels: speed-up, memory, utilization, and accuracy against speed
      modelled:  grid.csv, grid.html; a folder for each of several models, dtypes or attentions

    Example: tracekit bench --model gpt2 --dtype fp32,fp16 --apply none,compile,cuda-graphs --batch-size 1,8

    Example: tracekit bench --model gpt2 --gpu t4,a100 --seq-len 128,1024 --apply none,nf4
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if gpus or measure:
        _model(gpus or [], measure, **asked)
    else:
        _measure(**asked)


def _model(
    gpus: list[str],
    measure: bool,
    *,
    models: list[str],
    dtypes: list[Any],
    attentions: list[Any],
    batches: list[int] | None,
    lengths: list[int],
    apply: list[str],
    output: Path,
    max_seconds: float,
    weights: str,
    **asked: Any,
) -> None:
    """Model the grid, and print and write one table for each model, dtype and attention."""
    measured = {name: asked.pop(name) for name in _MEASURED_ONLY}
    if any(measured.values()) or weights != "random":
        raise click.UsageError(
            "--eval, --calibration, --train-steps, --largest-batch, --panels and --weights are for a measured grid."
        )
    if not measure and asked["device"] != "auto":
        raise click.UsageError("--device selects where to measure: add --measure, or leave out --gpu.")
    check_names(models, gpus, apply)
    from tracekit.measure import PAGE, TABLE, sweep
    from tracekit.reports.document import render
    from tracekit.reports.measure import sweep_document

    batches = batches or [1, 2, 4, 8, 16, 32]
    limit = max_seconds * len(batches) * len(lengths) * len({"none", *apply})
    axes = (models, dtypes, attentions)
    for point in product(*axes):
        varying = [name.replace("/", "-") for name, axis in zip(point, axes, strict=True) if len(axis) > 1]
        folder = output / "-".join(varying)
        given: dict[str, Any] = dict(zip(("model", "dtype", "attention"), point, strict=True))
        grid: dict[str, Any] = {"gpu": gpus, "batch_size": batches, "seq_len": lengths, "apply": apply}
        rows = sweep(**given, **grid, **asked, output=folder, measure=measure, max_seconds=limit, say=say)
        click.echo(render(sweep_document(rows, str(point[0])), "text"), nl=False)
        click.echo(f"\nWritten to {folder}/: {PAGE}, {TABLE}")


def _measure(
    *,
    models: list[str],
    dtypes: list[str],
    attentions: list[str],
    batches: list[int] | None,
    lengths: list[int],
    apply: list[str],
    output: Path,
    force: bool,
    panels: bool,
    evaluation: str,
    calibration: Path | None,
    train_steps: int | None,
    largest_batch: bool,
    max_seconds: float,
    **asked: Any,
) -> None:
    """Measure the grid, and print and write its table."""
    check_names(models)
    from tracekit.measure import PANELS, BenchGrid, bench, configuration, evaluation_of, grid_names
    from tracekit.reports.document import render
    from tracekit.reports.measure import bench_document, figure
    from tracekit.reports.words import write_atomically

    names = grid_names(dtypes, attentions, apply)
    for name in names:
        configuration(name)
    settings = _settings(**asked, attention=attentions[0])
    judge = evaluation_of(evaluation) if evaluation else None
    texts = judge, calibration, train_steps or 0
    grid = BenchGrid(models, names, batches or [1], lengths, settings, *texts, largest_batch, max_seconds)
    rows = bench(grid, output, say, verbose=verbose(), force=force)
    values = [vars(row) for row in rows]
    click.echo(render(bench_document(values), "text"), nl=False)
    if panels:
        write_atomically(output / PANELS, figure(values))
    click.echo(f"\nWritten to {output}/: bench.csv, bench.html" + (f", {PANELS}" if panels else ""))
    if all(row.error for row in rows):
        raise InputError("Nothing was measured.", "Every point failed; the table says why.")


def _settings(device: Any, **shared: Any) -> Any:
    from tracekit.run import Settings, require

    torch, _ = require("torch"), require("transformers")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return Settings(model="", device=device, **shared)


def check_names(models: Iterable[str] = (), gpus: Iterable[str] = (), apply: Iterable[str] = ()) -> None:
    """Raise UnknownNameError with the nearest names for an unknown model, GPU or optimization."""
    from tracekit.advise import parse
    from tracekit.analyzers.cost import hardware
    from tracekit.analyzers.predict import NONE
    from tracekit.capture import find

    for model in models:
        find(model)
    for gpu in gpus:
        hardware.find(gpu)
    for names in apply:
        if names != NONE:
            parse(names)
