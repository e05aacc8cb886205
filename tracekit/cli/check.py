"""`tracekit check`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tracekit.cli._options import FORCE, Reading
from tracekit.cli._outputs import Output, output
from tracekit.version import __version__

if TYPE_CHECKING:
    from tracekit.analyzers.check import Check
    from tracekit.check import Options


_FORMATS = ("text", "json", "markdown", "github", "sarif", "junit")
_EXIT = {"pass": 0, "improved": 0, "regressed": 1, "inconclusive": 3}
_WORDS = {
    "text": (),
    "json": ('"schema_version"', '"outcome"'),
    "markdown": ("<!-- tracekit check",),
    "sarif": ('"tracekit"',),
    "junit": ('"tracekit check"',),
}
"""What each format of a check holds: only such a file is replaced. A text is recognized by its last line."""
_FILES = tuple(_WORDS)
_WRITTEN = "a check is written as .txt, .json, .md, .sarif or .xml, a history as .html or .txt, and nothing else."


class Request(NamedTuple):
    """What the command was asked for."""

    runs: tuple[str, ...]
    output: tuple[Output, ...]
    force: bool
    options: "Options"
    of: dict[str, Any]
    """The other options, by name."""


class _Check(Reading):
    """A command whose errors do not exit like a regression."""

    error_status = 2


@click.command(cls=_Check, short_help="Check a run against a baseline: is it slower or larger?")
@click.argument("runs", nargs=-1, metavar="RUN...")
@click.option(
    "--against", multiple=True, metavar="NAME|RUN", help="A baseline by name, or runs or traces (repeatable)."
)
@click.option("--only", type=click.Choice(["counters"]), help="Compare only counters, not times.")
@click.option(
    "--accept", multiple=True, metavar="ENTRY", help="An entry of the fingerprint that may differ (repeatable)."
)
@click.option(
    "--baselines", type=Path, metavar="FOLDER", help="The folder of the baselines.  [default: .tracekit/baselines]"
)
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), default="text", show_default=True, help="Standard output."
)
@output(*_FILES, "html", multiple=True, into="Also write the check to FILE (repeatable); .html is for --history alone.")
@click.option(
    "--in-turn",
    "in_turn_s",
    type=click.FloatRange(min=0),
    default=0,
    metavar="S",
    help="Time both runs again, alternately, for at most S seconds; RUN and --against are folders that profile made.",
)
@click.option("--record", is_flag=True, help="Add the run to the history of the baseline.")
@click.option("--save", metavar="NAME", help="Save RUN... as the baseline NAME instead of checking them.")
@click.option("--list", is_flag=True, help="List the baselines.")
@click.option("--show", metavar="NAME", help="Show the fingerprint, counters and times of a baseline.")
@click.option("--history", metavar="NAME", help="Show how a baseline developed, and where its level changed.")
@click.option("--counter", default="latency", show_default=True, help="With --history: a counter, not the latency.")
@click.option("--self-test", is_flag=True, help="Measure how often checks on this machine raise a false alarm.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where --self-test times its work.",
)
@click.option("--no-cache", is_flag=True, help="Read the traces again, and do not use or write the cache.")
@FORCE
@click.pass_context
def command(ctx: click.Context, runs: tuple[str, ...], output: tuple[Output, ...], force: bool, **asked: Any) -> None:
    """Check RUN (runs' folders or traces) against a baseline: does a step take longer, or do more?

    Several runs of the same thing give narrower intervals. Counters (launches, FLOPs, bytes, synchronisations, graph
    breaks, ...) are compared exactly; times by intervals over the repeats. Without --against, RUN is checked against
    the budget in [tool.tracekit.check] of pyproject.toml.

    A baseline is a small JSON file in the repository: the fingerprint of the machine and the settings, counters, and
    the times of each step. --save makes it; each --save and each --record adds a point to its history.

    \b
    Exit status:
      0  passed, or improved
      1  regressed
      2  wrong use, or an error: there is no verdict
      3  inconclusive
      4  unlike its baseline: another GPU, other versions or settings

    Example: tracekit check runs/gpt2-h100-decode --save main

    Example: tracekit check runs/gpt2-h100-decode --against main
    """
    instead = [name for name in _INSTEAD if asked[name]]
    _check_together(instead, runs, output, asked)
    options = _options(asked)
    if instead:
        _INSTEAD[instead[0]](Request(runs, output, force, options, asked))
        return
    verdict = _checked(runs, output, force, options, asked)
    click.echo(_rendered(verdict, asked["form"]), nl=False)
    if asked["record"]:
        from tracekit.check import record_check

        click.echo(f"Recorded in {record_check(verdict, asked['against'][0], options)}", err=True)
    ctx.exit(_EXIT[verdict.outcome])


def _check_together(
    instead: list[str], runs: tuple[str, ...], output: tuple[Output, ...], asked: dict[str, Any]
) -> None:
    """Raise UsageError for options that do not go together."""
    if len(instead) > 1 or (instead and (asked["against"] or asked["record"])):
        raise click.UsageError("--save, --list, --show, --history, --self-test and --against are asked one at a time.")
    if not runs and instead in ([], ["save"]):
        raise click.UsageError("Missing argument 'RUN...'.")
    if runs and instead and instead[0] not in ("save", "self_test"):
        raise click.UsageError(f"--{instead[0]} takes no RUN.")
    if asked["record"] and len(asked["against"]) != 1:
        raise click.UsageError("--record adds to the history of a baseline: name one with --against.")
    forms = {"history": ("html", "text")}.get(instead[0], ()) if instead else _FILES
    if wrong := [each for each in output if each.form not in forms]:
        raise click.UsageError(f"{wrong[0].path} cannot be written: " + _WRITTEN)


def _options(asked: dict[str, Any]) -> "Options":
    from tracekit.check import Options

    return Options(
        counters_only=asked["only"] == "counters",
        accept=asked["accept"],
        baselines=asked["baselines"],
        use_cache=not asked["no_cache"],
        in_turn_s=asked["in_turn_s"],
    )


def _checked(
    runs: tuple[str, ...], output: tuple[Output, ...], force: bool, options: "Options", asked: dict[str, Any]
) -> "Check":
    """Return the verdict, after writing it into the files."""
    from tracekit.check import check, check_recordable
    from tracekit.reports.words import check_text, check_writable, mark_of, write_atomically, write_text

    for each in output:
        check_writable(each.path)
        check_text(each.path, "a check", _WORDS[each.form], force)
    if asked["record"]:
        check_recordable(asked["against"][0], options)
    verdict = check(runs, asked["against"], options)
    for path, form in output:
        if form == "text":
            write_text(path, _rendered(verdict, form, colour=False), form, "check", mark_of(*runs), force)
        else:
            write_atomically(path, _rendered(verdict, form))
    return verdict


def _rendered(verdict: "Check", form: str, colour: bool | None = None) -> str:
    from tracekit.check import Files
    from tracekit.reports.check import check_document, comment, export
    from tracekit.reports.document import render

    placed = Files(Path.cwd()).placed
    if form == "github":
        return export.annotations(verdict, placed)
    if form == "sarif":
        return export.to_sarif(verdict, placed, __version__)
    if form == "text":
        return render(check_document(verdict), form, colour=colour)
    return {"json": export.to_json, "markdown": comment, "junit": export.to_junit}[form](verdict)


def _save(asked: Request) -> None:
    from tracekit.check import save

    click.echo(save(asked.of["save"], asked.runs, asked.options, force=asked.force), nl=False)


def _list(asked: Request) -> None:
    from tracekit.check import listed

    click.echo(listed(asked.options), nl=False)


def _show(asked: Request) -> None:
    from tracekit.check import shown

    click.echo(shown(asked.of["show"], asked.options), nl=False)


def _self_test(asked: Request) -> None:
    from tracekit.check import described, self_test

    tested = self_test(asked.runs, asked.of["device"])
    click.echo(described(tested), nl=False)
    click.get_current_context().exit(_EXIT[tested.outcome])


def _history(asked: Request) -> None:
    from tracekit.check import configuration, folder_of, read_history
    from tracekit.reports.check import history_document, series
    from tracekit.reports.document import render
    from tracekit.reports.words import check_page, check_writable, mark_of, write_atomically, write_text

    folder, name = folder_of(asked.options, *configuration()), asked.of["history"]
    mark = mark_of(folder / name)
    for path, form in asked.output:
        check_writable(path)
        if form == "html":
            check_page(path, "history", mark, asked.force)
    document = history_document(name, series(read_history(name, folder), asked.of["counter"]))
    for path, form in asked.output:
        text = render(document, form, mark=mark, colour=False)
        if form == "html":
            write_atomically(path, text)
        else:
            write_text(path, text, form, "history", mark, asked.force)
        click.echo(f"Wrote {path}", err=True)
    if not asked.output:
        click.echo(render(document, "text"), nl=False)


_INSTEAD = {"save": _save, "list": _list, "show": _show, "history": _history, "self_test": _self_test}
"""What is done instead of a check, by the option that asks for it."""
