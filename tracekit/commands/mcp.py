"""`tracekit mcp`."""

from pathlib import Path

import click

from tracekit.commands._reading import Reading


@click.command(cls=Reading, short_help="Serve answers to programs (Model Context Protocol).")
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=Path,
    metavar="FOLDER",
    help="A folder whose traces may be read (repeatable).  [default: the current folder]",
)
@click.option("--allow-write", is_flag=True, help="Also offer a tool that saves baselines.")
def command(roots: tuple[Path, ...], allow_write: bool) -> None:
    """Serve analyze, show, predict, sweep, compare, check and ranks to programs, by the Model Context Protocol.

    The server uses standard input and output, reads only below the given folders (links are resolved before a
    path is judged), and writes nothing without --allow-write. It needs: pip install 'tracekit[mcp]'

    Example: tracekit mcp --root runs
    """
    from tracekit.programs.roots import Roots
    from tracekit.programs.server import server
    from tracekit.programs.tools import Tools

    tools = Tools(Roots.of(roots or (Path.cwd(),)), allow_write=allow_write)
    server(tools, allow_write=allow_write).run("stdio")
