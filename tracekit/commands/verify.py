"""`tracekit verify`."""

import os
from pathlib import Path
from typing import Any

import click

from tracekit.capture.settings import DEVICES
from tracekit.commands._output import say, verbose


@click.command()
@click.argument("run", type=Path)
@click.option("--top", type=click.IntRange(min=1), default=3, show_default=True, help="How many recommendations.")
@click.option("--apply", metavar="A+B,C", default="", help='Measure these instead; joined with "+": together.')
@click.option(
    "--device",
    type=click.Choice([device for device in DEVICES if device != "model"]),
    default="auto",
    show_default=True,
    help="Where to repeat the run.  [auto: where it ran]",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=120,
    show_default=True,
    metavar="S",
    help="Time to compare an optimization with the run; with slow steps, fewer are timed.",
)
def command(run: Path, top: int, apply: str, device: str, max_seconds: float) -> None:
    """Apply what was recommended for RUN (a run's folder), and measure what it gives.

    The model is built again with the same weights and inputs, once as it was and once with the optimization; both are
    timed in turn, block by block, without a profiler. Outputs are compared. The result is printed beside what was
    predicted, and kept in RUN: verify.json (written after each), report.html, analysis.json.

    \b
    Needs, for some optimizations:
      pip install 'tracekit[quantize]'      int8, int4 and fp8 (torchao)
      pip install 'tracekit[bitsandbytes]'  NF4, LLM.int8
      pip install 'tracekit[fused]'         fused kernels (liger-kernel)

    Example: tracekit verify runs/gpt2-h200-decode --apply cuda-graphs,half-precision+cuda-graphs
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from tracekit.reports.verification_report import to_text
    from tracekit.verification.verify_run import verify_run

    names = [name for name in apply.split(",") if name.strip()]
    options: dict[str, Any] = {"top": top, "device": device, "wall_s": max_seconds}
    verification = verify_run(run, names, **options, say=say, verbose=verbose())
    click.echo(to_text(verification), nl=False)
    click.echo(f"\nWritten to {run}/: verify.json, report.html, analysis.json")
