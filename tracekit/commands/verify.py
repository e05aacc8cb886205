"""`tracekit verify`."""

import os
from pathlib import Path

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
def command(run: Path, top: int, apply: str, device: str) -> None:
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
    from tracekit.reports.verified import to_text
    from tracekit.verification.verify_run import verify_run

    names = [name for name in apply.split(",") if name.strip()]
    found = verify_run(run, names, top=top, device=device, say=say, verbose=verbose())  # type: ignore[arg-type]
    click.echo(to_text(found), nl=False)
    click.echo(f"\nWritten to {run}/: verify.json, report.html, analysis.json")
