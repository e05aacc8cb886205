"""`tracekit memory`."""

from pathlib import Path

import click


@click.command()
@click.argument("snapshot", type=Path)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(snapshot: Path, form: str) -> None:
    """Show who allocated the memory in SNAPSHOT, a .pickle of torch.cuda.memory._dump_snapshot().

    Prints, for each device, what is reserved, allocated and unused, the most that was allocated at once, and by which
    lines of code. The pickle is read without executing anything in it.

    Example: tracekit memory snapshot.pickle
    """
    from tracekit.analyzers.memory_snapshot.read import read_snapshot
    from tracekit.analyzers.memory_snapshot.summary import summarize
    from tracekit.reports.memory_snapshot import to_json, to_text

    devices = summarize(read_snapshot(snapshot))
    click.echo(to_json(devices) if form == "json" else to_text(devices), nl=False)
