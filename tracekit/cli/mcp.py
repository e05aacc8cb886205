"""`tracekit mcp`."""

from pathlib import Path

import click

from tracekit.cli._options import FORCE, Reading

SKILLS = ".claude/skills"


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
@click.option(
    "--install-skill",
    "skills",
    is_flag=False,
    flag_value=SKILLS,
    metavar="[FOLDER]",
    help=f"Write FOLDER/tracekit/SKILL.md, which teaches a coding agent tracekit.  [default: {SKILLS}]",
)
@click.option("--show-skill", is_flag=True, help="Print the skill file.")
@FORCE
def command(roots: tuple[Path, ...], allow_write: bool, skills: str | None, show_skill: bool, force: bool) -> None:
    """Serve analyze, show, predict, sweep, compare, check and ranks to programs, by the Model Context Protocol.

    The server uses standard input and output, reads only below the given folders (links are resolved before a
    path is judged), and writes nothing without --allow-write. It needs: pip install 'mcp>=2.0'

    With --install-skill or --show-skill nothing is served: the skill file teaches a coding agent the commands.

    Example: tracekit mcp --root runs

    Example: tracekit mcp --install-skill
    """
    if skills or show_skill:
        _skill(skills, show_skill, force)
        return
    from tracekit.agents import Roots, Tools, server

    tools = Tools(Roots.of(roots or (Path.cwd(),)), allow_write=allow_write)
    server(tools, allow_write=allow_write).run("stdio")


def _skill(skills: str | None, shown: bool, force: bool) -> None:
    from tracekit.agents import install, text

    if skills:
        click.echo(f"Wrote {install(Path(skills), force=force)}", err=True)
    if shown:
        click.echo(text(), nl=False)
