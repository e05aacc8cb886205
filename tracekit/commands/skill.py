"""`tracekit skill`."""

from pathlib import Path

import click

from tracekit.commands._output import FORCE


@click.group(short_help="Install a skill file that teaches coding agents tracekit.")
def command() -> None:
    """Teach a coding agent to use tracekit, by a short skill file."""


@command.command("install", short_help="Write the skill to a folder.")
@click.argument("folder", type=Path, default=Path(".claude/skills"), metavar="[FOLDER]")
@FORCE
def install_skill(folder: Path, force: bool) -> None:
    """Write the skill to FOLDER/tracekit/SKILL.md; FOLDER is where the agent looks for skills.

    [default: .claude/skills]

    Example: tracekit skill install
    """
    from tracekit.programs.skill import install

    click.echo(f"Wrote {install(folder, force=force)}", err=True)


@command.command("show")
def show_skill() -> None:
    """Print the skill."""
    from tracekit.programs.skill import text

    click.echo(text(), nl=False)
