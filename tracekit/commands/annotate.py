"""`tracekit annotate`."""

from pathlib import Path

import click

from tracekit.commands._reading import GPU_FILE, Reading


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
def command(trace: str, gpu: str | None, gpu_file: str | None, output: Path) -> None:
    """Write TRACE again with what tracekit found in it, for Perfetto and Chrome's viewer.

    \b
    Added, as tracks of their own:
      layers          as the device ran them
      counters        TFLOP/s, GB/s, part of the roof, length of the launch queue
      recommendations with prediction, reason and code

    Traces that tracekit profile and tracekit run make have them already. Reading such a trace gives the same analysis.

    Example: tracekit annotate trace.json -o found.json.gz
    """
    from tracekit.analyzers.errors import InputError
    from tracekit.answers.full_analysis import analyze_into
    from tracekit.reports.files import check_writable
    from tracekit.reports.findings.write import annotate

    if trace == "-":
        raise InputError("Standard input cannot be annotated.", "It would have to be read twice.", "Name a file.")
    check_writable(output)
    analyze_into(trace, output, lambda found: annotate(trace, output, found), gpu, gpu_file)
    click.echo(f"Wrote {output}", err=True)
