"""`tracekit memory`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from tracekit.commands._output import FORCE


@click.command(short_help="Show what holds device memory at its peak, and over time.")
@click.argument("file", type=Path)
@click.option("--gpu", help="The GPU of the run, if the trace does not state it.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-o", "--output", type=Path, metavar="FILE", help="Also write a page of memory over time (.html).")
@FORCE
def command(file: Path, gpu: str | None, form: str, output: Path | None, force: bool) -> None:
    """Show what holds device memory at its peak, and over time, in FILE.

    \b
    FILE is one of:
      a trace with memory events, or its run's folder (modelled runs; torch.profiler with profile_memory=True):
        memory by kind and by layer, and the predicted peak after each optimization that lowers it
      a .pickle of torch.cuda.memory._dump_snapshot(): reserved and allocated memory, and the lines of code that hold
      it; it is read without executing anything in it

    Example: tracekit memory runs/gpt2-t4-train -o memory.html
    """
    from tracekit.reports.files import check_writable, write_atomically
    from tracekit.reports.replacing import check_not_input, check_text

    if output:
        check_writable(output)
        check_not_input(output, str(file))
        check_text(output, "a page of memory", ("Memory over time",), force)
    text, draw = _of_snapshot(file, form) if file.suffix == ".pickle" else _of_run(file, gpu, form)
    click.echo(text, nl=False)
    if output:
        write_atomically(output, draw())
        click.echo(f"Wrote {output}", err=True)


def _of_run(file: Path, gpu: str | None, form: str) -> tuple[str, Callable[[], str]]:
    from tracekit.answers.device_memory import memory_of_run
    from tracekit.reports.memory_timeline import to_html, to_json, to_text

    run = memory_of_run(file, gpu)
    return to_json(run) if form == "json" else to_text(run), partial(to_html, run)


def _of_snapshot(file: Path, form: str) -> tuple[str, Callable[[], str]]:
    from tracekit.analyzers.memory_snapshot.by_device import summarize
    from tracekit.analyzers.memory_snapshot.over_time import over_time
    from tracekit.analyzers.memory_snapshot.read import read_snapshot
    from tracekit.reports.memory_snapshot import page, to_json, to_text

    snapshot = read_snapshot(file)
    devices = summarize(snapshot)
    most = max(devices, key=lambda each: each.peak or each.allocated, default=None)
    text = to_json(devices) if form == "json" else to_text(devices)
    return text, lambda: page(file.name, most, over_time(snapshot, most.device)) if most else ""
