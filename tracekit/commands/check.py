"""`tracekit check`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit import __version__
from tracekit.commands._output import say
from tracekit.commands._reading import Reading

if TYPE_CHECKING:
    from tracekit.analyzers.gate.verdict import Check

_FORMATS = ("text", "json", "markdown", "github", "sarif", "junit")
_EXIT = {"pass": 0, "improved": 0, "regressed": 1, "inconclusive": 3}
_OUTPUTS = (("--markdown", "markdown"), ("--sarif", "sarif"), ("--junit", "junit"), ("--json", "json"))


def _outputs(command: "click.decorators.FC") -> "click.decorators.FC":
    """Add an option for each file that a check can write."""
    for option, form in reversed(_OUTPUTS):
        command = click.option(
            option, form, type=Path, metavar="FILE", help=f"Also write the check as {form} to FILE."
        )(command)
    return command


class _Check(Reading):
    """A command whose errors do not exit like a regression."""

    error_status = 2


@click.command(cls=_Check, short_help="Check a run against a baseline: is it slower or larger?")
@click.argument("runs", nargs=-1, metavar="RUN...")
@click.option(
    "--against", multiple=True, metavar="NAME|RUN", help="A baseline by name, or runs or traces (repeatable)."
)
@click.option("--counters", "counters_only", is_flag=True, help="Compare only counters, not times.")
@click.option(
    "--accept", multiple=True, metavar="ENTRY", help="An entry of the fingerprint that may differ (repeatable)."
)
@click.option(
    "--baselines", type=Path, metavar="FOLDER", help="The folder of the baselines.  [default: .tracekit/baselines]"
)
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), default="text", show_default=True, help="Standard output."
)
@_outputs
@click.option(
    "--in-turn",
    "in_turn_s",
    type=click.FloatRange(min=0),
    default=0,
    metavar="S",
    help="Time both runs again, alternately, for at most S seconds; RUN and --against are folders that profile made.",
)
@click.option("--record", is_flag=True, help="Add the run to the history of the baseline.")
@click.option(
    "--self-test", "self_testing", is_flag=True, help="Measure how often checks on this machine raise a false alarm."
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where --self-test times its work.",
)
@click.option("--no-cache", is_flag=True, help="Read the traces again, and do not use or write the cache.")
@click.pass_context
def command(
    ctx: click.Context,
    runs: tuple[str, ...],
    against: tuple[str, ...],
    counters_only: bool,
    accept: tuple[str, ...],
    baselines: Path | None,
    form: str,
    in_turn_s: float,
    record: bool,
    self_testing: bool,
    device: str,
    no_cache: bool,
    **files: Path | None,
) -> None:
    """Check RUN (runs' folders or traces) against a baseline: does a step take longer, or do more?

    Several runs of the same thing give narrower intervals. Counters (launches, FLOPs, bytes, synchronisations, graph
    breaks, ...) are compared exactly; times by intervals over the repeats. Without --against, RUN is checked against
    the budget in [tool.tracekit.check] of pyproject.toml.

    \b
    Exit status:
      0  passed, or improved
      1  regressed
      2  wrong use, or an error: there is no verdict
      3  inconclusive
      4  unlike its baseline: another GPU, other versions or settings

    Example: tracekit check runs/gpt2-h100-decode --against main
    """
    if self_testing:
        from tracekit.checking.self_test import described, self_test

        tested = self_test(runs, device)
        click.echo(described(tested), nl=False)
        ctx.exit(_EXIT[tested.outcome])
    if not runs:
        raise click.UsageError("Missing argument 'RUN...'.")
    if record and len(against) != 1:
        raise click.UsageError("--record adds to the history of a baseline: name one with --against.")
    from tracekit.checking.check import Options, check
    from tracekit.checking.history import check_recordable, record_check

    _check_writable(files)
    options = Options(counters_only, accept, baselines, not no_cache, in_turn_s, say)
    if record:
        check_recordable(against[0], options)
    verdict = check(runs, against, options)
    _write(verdict, files)
    click.echo(_rendered(verdict, form), nl=False)
    if record:
        click.echo(f"Recorded in {record_check(verdict, against[0], options)}", err=True)
    ctx.exit(_EXIT[verdict.outcome])


def _check_writable(files: dict[str, Path | None]) -> None:
    from tracekit.reports.files import check_writable

    for path in filter(None, files.values()):
        check_writable(path)


def _write(verdict: "Check", files: dict[str, Path | None]) -> None:
    from tracekit.reports.files import write_atomically

    for form, path in files.items():
        if path:
            write_atomically(path, _rendered(verdict, form))


def _rendered(verdict: "Check", form: str) -> str:
    from tracekit.checking.repository import Files
    from tracekit.reports.checking import check_comment, check_export, check_text, github_annotations, junit, sarif

    placed = Files(Path.cwd()).placed
    if form == "github":
        return github_annotations.annotations(verdict, placed)
    if form == "sarif":
        return sarif.to_sarif(verdict, placed, __version__)
    render = {
        "text": check_text.full,
        "json": check_export.to_json,
        "markdown": check_comment.render,
        "junit": junit.to_junit,
    }
    return render[form](verdict)
