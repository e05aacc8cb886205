"""`tracekit annotate`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.commands._output import FORCE
from tracekit.commands._reading import GPU_FILE, Reading

if TYPE_CHECKING:
    from tracekit.analyzers.results import Analysis


@click.command(cls=Reading, short_help="Add layers, counters and advice to a trace, for Perfetto.")
@click.argument("trace")
@click.option("--gpu", help="The GPU of the run, if the trace does not state it.")
@click.option("--gpu-file", metavar="FILE", help=GPU_FILE)
@click.option(
    "-o",
    "--output",
    type=Path,
    metavar="FILE",
    required=True,
    help="The trace to write, .json or .json.gz. It may be TRACE itself.",
)
@click.option("--keep-metadata", is_flag=True, help="Keep call stacks and data that identifies the machine.")
@FORCE
def command(trace: str, gpu: str | None, gpu_file: str | None, output: Path, keep_metadata: bool, force: bool) -> None:
    """Write a copy of TRACE with tracekit's findings, for Perfetto and Chrome's viewer.

    \b
    Added tracks:
      layers          as nested spans on each device
      counters        TFLOP/s, GB/s, fraction of the roof, length of the launch queue
      recommendations with prediction, reason and code

    Environment, host name, command lines and call stacks are removed, unless --keep-metadata is given or the output
    is TRACE itself.

    Traces from tracekit profile and tracekit run have these tracks already. They do not change the analysis.

    Example: tracekit annotate trace.json -o annotated.json.gz
    """
    from tracekit.analyzers.errors import InputError
    from tracekit.answers.full_analysis import analyze_into
    from tracekit.reports.files import check_writable
    from tracekit.reports.findings.removal import Removed
    from tracekit.reports.findings.write import annotate
    from tracekit.reports.replacing import check_trace, is_same_file, mark_of

    if trace == "-":
        raise InputError(
            "Standard input cannot be annotated.",
            "It can be read only once, and annotating reads it twice.",
            "Name a file.",
        )
    if Path(trace).is_fifo():
        raise InputError(f"{trace} cannot be annotated.", "A pipe can be read only once.", "Name a file.")
    check_writable(output)
    in_place, mark = is_same_file(output, trace), mark_of(trace)
    if not in_place:
        check_trace(output, mark, force)
    removed: list[Removed] = []

    def write(analysis: "Analysis") -> None:
        removed.append(annotate(trace, output, analysis, keep_metadata=keep_metadata or in_place, mark=mark))

    analyze_into(trace, output, write, gpu, gpu_file)
    if left_out := str(removed[0]):
        click.echo(f"Left out: {left_out}. --keep-metadata keeps them.", err=True)
    click.echo(f"Wrote {output}", err=True)
