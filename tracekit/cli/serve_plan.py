"""`tracekit serve-plan`."""

import re
from pathlib import Path
from typing import Any

import click

from tracekit.cli._options import FORCE, say
from tracekit.cli._outputs import folder_option, stdout_format

PAGE, TABLE, ANSWER = "serve_plan.html", "serve_plan.csv", "serve_plan.json"
_LARGEST = 4096
_POOL = 16


@click.command("serve-plan", short_help="Predict how an engine serves a stream of requests.")
@click.option(
    "--model", required=True, metavar="NAME|FOLDER", help="A known architecture, or a folder with config.json."
)
@click.option("--gpu", required=True, help="A GPU that `tracekit gpus` lists.")
@click.option(
    "--requests",
    required=True,
    metavar="STREAM",
    help="closed:USERS,PROMPT,OUTPUT, batch:FILE, poisson:RATE,PROMPT,OUTPUT, or a CSV file with arrival_s, "
    "prompt_tokens and output_tokens.",
)
@click.option(
    "--engine",
    type=click.Choice(["vllm", "sglang", "trtllm", "transformers"]),
    default="vllm",
    show_default=True,
)
@click.option(
    "--dtype",
    type=click.Choice(["bf16", "fp8", "nvfp4", "int4"]),
    default="bf16",
    show_default=True,
    help="Of weights.",
)
@click.option("--tp", "tensor", type=click.IntRange(1, 64), default=1, show_default=True, help="GPUs for each layer.")
@click.option("--ep", "expert", type=click.IntRange(1, 64), default=1, help="Of these, groups with whole experts.")
@click.option("--dp", "data", type=click.IntRange(1, 64), default=1, help="Of these, copies of the attention.")
@click.option("--pools", metavar="P,D", help="P copies of the model process prompts, D others decode.")
@click.option(
    "--most-requests", type=click.IntRange(1, _LARGEST), help="Most requests in flight; default: the engine's."
)
@click.option("--most-tokens", type=click.IntRange(1, 10**6), help="Most tokens in a pass; default: the engine's.")
@click.option("--graphs/--no-graphs", default=True, show_default=True, help="CUDA graphs, where the engine has them.")
@click.option("--prefix-hit", type=click.FloatRange(0, 0.99), default=0.0, help="Part of each prompt that is cached.")
@click.option("--acceptance", metavar="LOW-HIGH", help="Part of drafted tokens that are accepted: 0.6-0.8.")
@click.option("--slo", metavar="ttft=S,tpot=S", help="Limits in seconds: first token, time per output token.")
@click.option("--price", type=click.FloatRange(min=0), help="Price of a GPU for an hour.")
@click.option(
    "--from", "trace", type=click.Path(), metavar="TRACE", help="Fit the twin to a trace of the running engine."
)
@click.option("--search", is_flag=True, help="Also simulate settings: GPUs, formats, tokens of a pass, graphs.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the drawn lengths.")
@stdout_format("text", "json")
@folder_option(default="serve-plan", show_default=True)
@FORCE
def command(
    output: Path,
    force: bool,
    form: str | None,
    slo: str | None,
    acceptance: str | None,
    pools: str | None,
    **options: Any,
) -> None:
    """Predict how an engine serves a stream of requests with a model on GPUs: tokens per second, time to the first
    token and per output token, with intervals.

    Nothing runs: passes are modelled from the numbers of the architecture, and the engine is simulated.

    \b
    Files, in the output folder:
      serve_plan.html  the answer, the settings beside it, and the KV cache over time
      serve_plan.csv   one row for each setting
      serve_plan.json  the same, with intervals

    Example: tracekit serve-plan --model llama-3.1-8b --gpu h200 --dtype fp8 --requests closed:128,1024,512
    """
    from tracekit.analyzers.serving import Question
    from tracekit.reports.document import render
    from tracekit.reports.serving import serving_document, to_csv, to_json
    from tracekit.reports.words import check_text, check_writable, write_atomically
    from tracekit.serving import serve_plan

    question = Question(slo=_limits(slo), acceptance=_acceptance(acceptance), pools=_pools(pools), **options)
    for name, words in ((PAGE, ("Serving",)), (TABLE, ("setting,gpus",)), (ANSWER, ('"serve-plan"',))):
        check_writable(output / name)
        check_text(output / name, "a serving plan", words, force)
    plan = serve_plan(question)
    answer, document = to_json(plan), serving_document(plan)
    write_atomically(output / TABLE, to_csv(plan))
    write_atomically(output / PAGE, render(document, "html"))
    write_atomically(output / ANSWER, answer)
    click.echo(answer if form == "json" else render(document, "text"), nl=False)
    say(f"Written to {output}/: {PAGE}, {TABLE}, {ANSWER}")


def _limits(text: str | None) -> dict[str, float]:
    if not text:
        return {}
    try:
        pairs = [part.split("=") for part in text.split(",")]
        limits = {name.strip(): float(value) for name, value in pairs}
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: give limits in seconds, as in ttft=0.5,tpot=0.03.") from error
    if not set(limits) <= {"ttft", "tpot"} or not all(0 < value < 1e6 for value in limits.values()):
        raise click.BadParameter(f"{text!r}: limits are ttft and tpot, and above 0.")
    return limits


def _acceptance(text: str | None) -> tuple[float, float] | None:
    if not text:
        return None
    try:
        low, high = sorted(float(part) for part in text.split("-"))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: give two shares, as in 0.6-0.8.") from error
    if not 0 < low <= high < 1:
        raise click.BadParameter(f"{text!r}: shares are between 0 and 1.")
    return low, high


def _pools(text: str | None) -> tuple[int, int] | None:
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,2}),(\d{1,2})", text)
    if not match or not 0 < int(match[1]) <= _POOL or not 0 < int(match[2]) <= _POOL:
        raise click.BadParameter(f"{text!r}: give two numbers from 1 to {_POOL}, as in 1,2.")
    return int(match[1]), int(match[2])
