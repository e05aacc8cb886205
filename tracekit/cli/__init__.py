"""The `tracekit` command. Its subcommands are the files in tracekit/cli, imported when they are needed."""

import io
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from tracekit.analyzers.core import TracekitError
from tracekit.cli._progress import ending_in_order, shown_progress
from tracekit.version import __version__

_COMMANDS = Path(__file__).parent


class Verbs(click.Group):
    """A group of subcommands, each of which tracekit/cli/VERB.py defines as `command`.

    A hyphen in a verb is an underscore in the name of its file.
    Exceptions are printed as an error with its cause and a hint, and end the process with the status of the exception
    or else of the command's errors, by default 1.
    """

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        return sorted(path.stem.replace("_", "-") for path in _COMMANDS.glob("[a-z]*.py"))

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        return import_module(f"tracekit.cli.{cmd_name.replace('-', '_')}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raise UsageError with the nearest commands if there is none of this name, and for an option given twice."""
        verbs = self.list_commands(ctx)
        if args[0] in verbs or args[0].startswith("-"):
            name, command, rest = super().resolve_command(ctx, args)
            if command:
                _check_given_once(command, click.Context(command, ctx, name, **command.context_settings), rest)
            return name, command, rest
        from difflib import get_close_matches

        near = get_close_matches(args[0], verbs)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Commands are {', '.join(verbs)}."
        raise click.UsageError(f"No such command {args[0]!r}. {hint}", ctx)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            sys.stdout = sys.stdout or _Closed()  # Python has None for a closed one.
            with ending_in_order(), shown_progress():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            # The reader has closed the pipe, so nothing may be flushed to it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(1)
        except TracekitError as error:
            _explain(ctx, error, error.what, error.why, error.hint)
        except OSError as error:
            what = f"{error.filename} cannot be used." if error.filename else "A system call failed."
            _explain(
                ctx, error, what, f"{error.strerror or error}.", "Check the path, its permissions and the free space."
            )
        except MemoryError as error:
            _explain(ctx, error, "There is not enough memory.", f"{error}", "Try a smaller trace, batch or length.")
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            _explain(ctx, error, what, "This is a bug of tracekit.", "Run it again with -v, and report what it prints.")


def _check_given_once(command: click.Command, ctx: click.Context, words: list[str]) -> None:
    """Raise UsageError if an option with one value is given twice, because one value would be ignored."""
    given = command.make_parser(ctx).parse_args([*words])[2]
    options = [each for each in given if isinstance(each, click.Option) and not (each.multiple or each.is_flag)]
    twice = [each.opts[-1] for each in options if options.count(each) > 1]
    if twice:
        joined = " Join its values with +." if twice[0] == "--apply" else ""
        raise click.UsageError(f"{twice[0]} is given twice, and takes one value.{joined}", ctx)


class _Closed(io.TextIOBase):
    """Standard output that was closed before the command began (`>&-`)."""

    def write(self, text: str) -> int:
        raise TracekitError(
            "Standard output is closed.",
            "The result cannot be printed.",
            "Write it to a file with -o, or leave stdout open.",
        )


def _explain(ctx: click.Context, error: BaseException, what: str, why: str, hint: str) -> None:
    import traceback

    from tracekit.reports.words import printable_lines

    if ctx.params["verbose"]:
        traceback.print_exception(error)
    click.secho("error: ", fg="red", bold=True, err=True, nl=False)
    click.echo(printable_lines("\n       ".join(part for part in (what, why, hint) if part)), err=True)
    ctx.exit(_status(ctx, error))


def _status(ctx: click.Context, error: BaseException) -> int:
    if isinstance(error, TracekitError) and error.status:
        return error.status
    command = main.get_command(ctx, ctx.invoked_subcommand) if ctx.invoked_subcommand else None
    return getattr(command, "error_status", 1)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="tracekit %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error, and what libraries print.")
def main(verbose: bool) -> None:
    """Profile PyTorch models, read GPU traces, and learn what to do next and how much it will give."""
