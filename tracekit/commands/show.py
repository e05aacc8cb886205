"""`tracekit show`."""

from typing import Any

import click

from tracekit.commands._reading import Reading, analysis_of, reading


@click.command(cls=Reading, short_help="Show one row of an analysis in full, as JSON.")
@reading
@click.argument("row")
def command(trace: str, row: str, **options: Any) -> None:
    """Show one row of the analysis of TRACE in full, as JSON: a layer, op, kernel, cause, counter, advice or step.

    ROW is an id of `tracekit analyze TRACE --brief`, such as layer:transformer.h.3.attn, op:aten::addmm, cause:sync,
    counter:launches or advice:cuda-graphs.

    Example: tracekit show runs/gpt2-h100-decode layer:lm_head
    """
    from tracekit.reports.brief.row_detail import row_detail
    from tracekit.reports.untrusted import json_text

    analysis = analysis_of(trace, **options)
    click.echo(json_text(row_detail(analysis, row)), nl=False)
