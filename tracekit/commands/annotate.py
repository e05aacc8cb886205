"""`tracekit annotate`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.commands._output import FORCE
from tracekit.commands._reading import GPU_FILE, Reading

if TYPE_CHECKING:
    from tracekit.analyzers.results import Analysis


@click.command(cls=Reading)
@click.argument("trace")
@click.option("--gpu", help="The GPU it ran on, when the trace does not say.")
@click.option("--gpu-file", metavar="FILE", help=GPU_FILE)
@click.option(
    "-o",
    "--output",
    type=Path,
    metavar="FILE",
    required=True,
    help="The trace to write: .json, or .json.gz; may be TRACE itself.",
)
@click.option("--keep-metadata", is_flag=True, help="Pass on all that TRACE tells about the machine, and call stacks.")
@FORCE
def command(trace: str, gpu: str | None, gpu_file: str | None, output: Path, keep_metadata: bool, force: bool) -> None:
    """Write TRACE again with what tracekit found in it, for Perfetto and Chrome's viewer.

    \b
    Added, as tracks of their own:
      layers          as the device ran them
      counters        TFLOP/s, GB/s, part of the roof, length of the launch queue
      recommendations with prediction, reason and code

    Left out, unless --keep-metadata is given: environment, host name, command lines, call stacks. A TRACE that is
    replaced by itself keeps them.

    Traces that tracekit profile and tracekit run make have them already. Reading such a trace gives the same analysis.

    Example: tracekit annotate trace.json -o found.json.gz
    """
    from tracekit.analyzers.errors import InputError
    from tracekit.answers.full_analysis import analyze_into
    from tracekit.reports.files import check_writable
    from tracekit.reports.findings.removal import Removed
    from tracekit.reports.findings.write import annotate
    from tracekit.reports.replacing import check_trace, is_same_file, mark_of

    if trace == "-":
        raise InputError("Standard input cannot be annotated.", "It would have to be read twice.", "Name a file.")
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
