"""`tracekit baseline`."""

from pathlib import Path

import click

from tracekit.commands._reading import Reading

_FOLDER = click.option(
    "--baselines", type=Path, metavar="FOLDER", help="The folder of the baselines.  [default: .tracekit/baselines]"
)


@click.group(short_help="Save, list and show the baselines of `tracekit check`.")
def command() -> None:
    """Save, list and show the baselines that `tracekit check` compares runs with.

    A baseline is a small JSON file in the repository: the fingerprint of the machine and the settings, counters, and
    the times of each step.

    Example: tracekit baseline save main runs/gpt2-h100-decode
    """


@command.command("save", cls=Reading, short_help="Save runs as a baseline.")
@click.argument("name")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@_FOLDER
@click.option("--no-cache", is_flag=True, help="Read the traces again, and do not use or write the cache.")
@click.option("--force", is_flag=True, help="Replace a baseline of another GPU, other versions or settings.")
def save_baseline(name: str, runs: tuple[str, ...], baselines: Path | None, no_cache: bool, force: bool) -> None:
    """Save each RUN (a folder or a trace; all of the same workload) as the baseline NAME, and add it to its history."""
    from tracekit.checking.check import Options
    from tracekit.checking.saving import save

    click.echo(save(name, runs, Options(baselines=baselines, use_cache=not no_cache), force=force), nl=False)


@command.command("list")
@_FOLDER
def list_baselines(baselines: Path | None) -> None:
    """List the baselines."""
    from tracekit.checking.check import Options
    from tracekit.checking.saving import listed

    click.echo(listed(Options(baselines=baselines)), nl=False)


@command.command("show", cls=Reading)
@click.argument("name")
@_FOLDER
def show_baseline(name: str, baselines: Path | None) -> None:
    """Show the fingerprint, counters and times of a baseline."""
    from tracekit.checking.check import Options
    from tracekit.checking.saving import shown

    click.echo(shown(name, Options(baselines=baselines)), nl=False)
