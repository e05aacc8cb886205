"""`tracekit show`."""

import click

from tracekit.commands._reading import Reading, reading


@click.command(cls=Reading)
@reading
@click.argument("row")
def command(
    trace: str,
    gpu: str | None,
    gpu_file: str | None,
    counters: str | None,
    captures: tuple[str, ...],
    no_cache: bool,
    max_unpacked: float,
    row: str,
) -> None:
    """Show one row of the analysis of TRACE in full, as JSON: a layer, op, kernel, cause, counter, advice or step.

    ROW is an id of `tracekit analyze TRACE --brief`, such as layer:transformer.h.3.attn, op:aten::addmm, cause:sync,
    counter:launches or advice:cuda-graphs.

    Example: tracekit show runs/gpt2-h100-decode layer:lm_head
    """
    from tracekit.answers.full_analysis import analyze
    from tracekit.reports.brief.row_detail import row_detail
    from tracekit.reports.untrusted import json_text

    analysis = analyze(
        trace,
        gpu,
        counters,
        gpu_file=gpu_file,
        captures=captures,
        use_cache=not no_cache,
        max_bytes=int(max_unpacked * 2**30),
    )
    click.echo(json_text(row_detail(analysis, row)), nl=False)
