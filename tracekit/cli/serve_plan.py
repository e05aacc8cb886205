"""`tracekit serve-plan`."""

import os
from pathlib import Path
from typing import Any

import click

from tracekit.cli._names import check_names
from tracekit.cli._output import FORCE, folder_option, say
from tracekit.run import DTYPES, WEIGHTS

PAGE, TABLE = "serve_plan.html", "serve_plan.csv"


@click.command("serve-plan", short_help="Predict how a GPU serves a stream of requests.")
@click.option("--model", required=True, help="A model that decodes, as for `profile`.")
@click.option("--gpu", required=True, help="A GPU that `tracekit gpus` lists.")
@click.option(
    "--requests",
    "stream",
    required=True,
    metavar="FILE|poisson:RATE,PROMPT,OUTPUT",
    help="A CSV file (arrival_s, prompt_tokens, output_tokens), or 200 requests drawn: RATE a second, mean tokens.",
)
@click.option(
    "--apply",
    default="none,chunked-prefill,cuda-graphs,cuda-graphs+chunked-prefill",
    show_default=True,
    help="Engines, separated by commas: chunked-prefill, and optimizations as `predict --apply` takes them.",
)
@click.option(
    "--acceptance",
    metavar="LOW-HIGH",
    help="Also decode speculatively, at both ends of this share of drafted tokens that are accepted: 0.6-0.8.",
)
@click.option(
    "--most-requests", type=click.IntRange(min=1), default=256, show_default=True, help="Most requests in flight."
)
@click.option(
    "--most-tokens", type=click.IntRange(min=1), default=2048, show_default=True, help="Most tokens in one pass."
)
@click.option(
    "--overhead-ms",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Measured time of an engine's pass outside the model: scheduling, page tables, sampling.",
)
@click.option("--dtype", type=click.Choice(DTYPES), default="auto", show_default=True)
@click.option("--weights", type=click.Choice(WEIGHTS), default="random", show_default=True)
@folder_option(default="serve-plan", show_default=True)
@FORCE
def command(output: Path, force: bool, stream: str, apply: str, acceptance: str | None, **options: Any) -> None:
    """Predict how a model on a GPU serves a stream of requests, batched in flight over a paged KV cache.

    Nothing runs: passes are modelled at a few batch sizes and lengths, and the engine is simulated pass by pass.

    \b
    Files, in the output folder:
      serve_plan.html  each engine's rates and times, and its KV cache over time
      serve_plan.csv   one row for each engine

    Example: tracekit serve-plan --model llama-3.1-8b --gpu h100 --requests poisson:8,512,128 --acceptance 0.6-0.8
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    engines = [*(name.strip() for name in apply.split(",") if name.strip()), *_speculative(acceptance)]
    parts = {part for name in engines for part in name.split("+")} - {"chunked-prefill"}
    check_names([options["model"]], [options["gpu"]], parts)
    from tracekit.run import require

    require("torch")
    from tracekit.analyzers.serving import requests
    from tracekit.reports.serving import to_csv, to_html, to_text
    from tracekit.reports.words import check_text, check_writable, write_atomically
    from tracekit.serving import serve_plan

    for name, words in ((PAGE, ("Serving",)), (TABLE, ("engine,tokens_per_s",))):
        check_writable(output / name)
        check_text(output / name, "a serving plan", words, force)
    plan = serve_plan(_question(requests(stream), engines, **options), say)
    title = f"{options['model']} on {plan.gpu.name}, {stream}"
    write_atomically(output / TABLE, to_csv(plan.table))
    write_atomically(output / PAGE, to_html(plan.table, plan.over_time, title))
    click.echo(to_text(plan.table, title), nl=False)
    click.echo(f"\nWritten to {output}/: {PAGE}, {TABLE}")


def _speculative(acceptance: str | None) -> list[str]:
    if not acceptance:
        return []
    try:
        low, high = sorted(float(part) for part in acceptance.split("-"))
    except ValueError as error:
        raise click.BadParameter(f"{acceptance!r}: give two shares, as in 0.6-0.8.") from error
    if not 0 < low <= high < 1:
        raise click.BadParameter(f"{acceptance!r}: shares are between 0 and 1.")
    return [f"speculative-decoding:{share:g}" for share in dict.fromkeys((low, high))]


def _question(
    stream: Any,
    engines: list[str],
    model: str,
    gpu: str,
    dtype: Any,
    weights: Any,
    overhead_ms: float,
    **limits: int,
) -> Any:
    from tracekit.run import Settings
    from tracekit.serving import Question

    settings = Settings(model=model, gpu=gpu, dtype=dtype, weights=weights, device="model")
    return Question(settings, gpu, stream, engines, overhead_s=overhead_ms / 1e3, **limits)
