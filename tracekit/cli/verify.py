"""`tracekit verify`."""

import os
from pathlib import Path
from typing import Any

import click

from tracekit.cli._options import EVAL, say, verbose
from tracekit.run import DEVICES


@click.command(short_help="Apply the recommendations for a run, and measure them.")
@click.argument("run", type=Path)
@click.option("--top", type=click.IntRange(min=1), default=3, show_default=True, help="How many recommendations.")
@click.option("--apply", metavar="A+B,C", default="", help='Measure these instead; "+" applies several together.')
@click.option(
    "--device",
    type=click.Choice([device for device in DEVICES if device != "model"]),
    default="auto",
    show_default=True,
    help="The device that repeats the run.  [auto: the device of the run]",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=120,
    show_default=True,
    metavar="S",
    help="Time limit for comparing one optimization with the run; slow steps are timed fewer times.",
)
@click.option("--eval", "evaluation", metavar="WHAT", default="", help=EVAL)
@click.option("--draft", metavar="MODEL", default="", help="The draft model of speculative decoding, to be measured.")
@click.option(
    "--prompt",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A text that generations with a draft model continue.  [default: random tokens]",
)
def command(
    run: Path,
    top: int,
    apply: str,
    device: str,
    max_seconds: float,
    evaluation: str,
    draft: str,
    prompt: Path | None,
) -> None:
    """Apply the recommendations for RUN (a run's folder), and measure their effect.

    The run of a script is repeated by running the script again, several times, with and without what can be applied
    around it; what it writes is written each time.

    The model is built twice with the same weights and inputs, with and without the optimization. Both are timed in
    alternating blocks, without a profiler, and their outputs are compared. The result is printed beside the prediction
    and saved in RUN: verify.json (after each optimization), report.html and analysis.json.

    \b
    Some optimizations need:
      pip install torchao                   int8, int4 and fp8
      pip install bitsandbytes accelerate   NF4, LLM.int8
      pip install liger-kernel              fused kernels
      pip install 'triton>=3.6'             fused:all, fused:N: the kernels that `fuse` writes

    With --eval, each optimization is also judged on the run's own trained weights (profile --weights pretrained): by
    the perplexity of a text, or by a function that takes the model and returns a score, or one for each example. Both
    are given before and after, with a 95 % interval of the change; a text also gives the share of equal next tokens and
    the KL divergence.

    With --draft, whole generations with and without the draft model are timed (greedy, so that both give the same
    text), and its acceptance is measured.

    Example: tracekit verify runs/gpt2-h200-decode --apply cuda-graphs,half-precision+cuda-graphs
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from tracekit.fuse import interpret_without_gpu
    from tracekit.measure import Draft, verify_run
    from tracekit.reports.answer import measured_document
    from tracekit.reports.document import render

    interpret_without_gpu()
    names = [name for name in apply.split(",") if name.strip()]
    options: dict[str, Any] = {"top": top, "device": device, "wall_s": max_seconds, "evaluation": evaluation}
    if draft:
        options["draft"] = Draft(draft, prompt)
    verification = verify_run(run, names, **options, say=say, verbose=verbose())
    click.echo(render(measured_document(verification), "text"), nl=False)
    click.echo(f"\nWritten to {run}/: verify.json, report.html, analysis.json")
