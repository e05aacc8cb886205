"""`tracekit predict`."""

from typing import Literal

import click

from tracekit.cli._options import FORCE, GPU_FILE, LATENCY, OPS_FILE, Reading
from tracekit.cli._outputs import Output, answer_to, output, stdout_format


@click.command(cls=Reading, short_help="Predict optimizations, another GPU or another batch size.")
@click.argument("trace")
@click.option("--apply", metavar="A+B", default="", help='Optimizations, joined with "+": half-precision+cuda-graphs.')
@click.option("--gpu", help="The GPU to predict for; if the trace states none, the GPU of the run.")
@click.option("--gpu-file", metavar="FILE", help=GPU_FILE)
@OPS_FILE
@LATENCY
@click.option("--batch-size", type=click.IntRange(min=1), metavar="N", help="Sequences per step.")
@click.option(
    "--data-parallel",
    type=click.IntRange(min=2),
    metavar="N",
    help="Train on N GPUs, each with the batch of the one GPU in TRACE (DistributedDataParallel).",
)
@click.option(
    "--link",
    type=click.Choice(["nvlink", "ib"]),
    default="nvlink",
    show_default=True,
    help="With --data-parallel: one host, or hosts of 8 GPUs with an InfiniBand adapter of 400 Gb/s each.",
)
@stdout_format("text", "json")
@output("json", "text")
@FORCE
def command(
    trace: str,
    apply: str,
    gpu: str | None,
    gpu_file: str | None,
    latency_ms: float | None,
    batch_size: int | None,
    data_parallel: int | None,
    link: Literal["nvlink", "ib"],
    form: str | None,
    output: Output | None,
    force: bool,
) -> None:
    """Predict the effect of optimizations, another GPU, another batch size or several GPUs on the run in TRACE (a file
    or a run's folder).

    Prints latency, speed-up and memory as intervals, and where the gain comes from. Without --apply, each optimization
    is predicted alone, and the best few together. An id may take an argument: half-precision:fp16, batching:32.

    Example: tracekit predict runs/gpt2-t4-decode --apply half-precision+cuda-graphs
    """
    from tracekit.answer import predict
    from tracekit.reports.answer import prediction_document, to_json
    from tracekit.reports.document import render

    answer = answer_to(output, form, "scaling" if data_parallel else "prediction", force, trace)
    answer.check(trace)
    if data_parallel:
        if apply or batch_size or latency_ms:
            what = "--data-parallel is predicted alone, without --apply, --batch-size and --latency-ms."
            raise click.UsageError(what)
        text = _scaled(trace, data_parallel, link, gpu, gpu_file, answer.form)
    else:
        predicted = predict(trace, apply, gpu, batch_size, gpu_file=gpu_file, latency_ms=latency_ms)
        document = prediction_document(predicted)
        text = to_json(predicted) if answer.form == "json" else render(document, "text")
    answer.give(lambda _: text)


def _scaled(
    trace: str, ranks: int, link: Literal["nvlink", "ib"], gpu: str | None, gpu_file: str | None, form: str
) -> str:
    from tracekit.answer import scaling
    from tracekit.reports.measure import sweep

    predicted = scaling(trace, ranks, gpu, link=link, gpu_file=gpu_file)
    return sweep.to_json(predicted) if form == "json" else sweep.scaling_text(predicted)
