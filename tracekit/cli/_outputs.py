"""Where commands write: `-o`, `--format`, and the answer that is printed or written to a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

FORMATS = {
    ".html": "html",
    ".md": "markdown",
    ".json": "json",
    ".csv": "csv",
    ".txt": "text",
    ".sarif": "sarif",
    ".xml": "junit",
    ".trace.json": "trace",
    ".json.gz": "trace",
    ".speedscope.json": "speedscope",
    ".folded": "collapsed",
    ".collapsed": "collapsed",
}
"""The format of a file, by its extension; the longest one counts."""


class Output(NamedTuple):
    """A file to write and its format, or a folder, whose format is "folder"."""

    path: Path
    form: str


class OutputPath(click.ParamType):
    """The argument of `-o` for a command that writes these formats; "folder" is one of them for all its files."""

    name = "output"

    def __init__(self, *forms: str):
        self.forms = forms

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        if isinstance(value, Output):
            return value
        path = Path(value)
        known = [extension for extension in FORMATS if path.name.lower().endswith(extension)]
        form = FORMATS[max(known, key=len)] if known else ""
        if "folder" in self.forms and (path.is_dir() or not path.suffix or value.endswith("/")):
            form = "folder"
        if form not in self.forms and not path.is_dir():
            self.fail(f"{value}: its extension says no format that can be written. {self.accepted()}.", param, ctx)
        return Output(path, form)

    def accepted(self) -> str:
        """Return the extensions that are understood, in a sentence without its end."""
        extensions = [extension for extension, form in FORMATS.items() if form in self.forms]
        folder = ", or a folder (NAME/)" if "folder" in self.forms else ""
        several = f"{', '.join(extensions[:-1])} or {extensions[-1]}" if extensions[1:] else extensions[0]
        return f"Its extension is {several}{folder}"


def output(*forms: str, into: str = "Write to FILE instead of stdout.", **attributes: Any) -> Callable[..., Any]:
    """Return the option `-o FILE` of a command that writes these formats."""
    kind = OutputPath(*forms)
    metavar = "FILE|FOLDER" if "folder" in forms else "FILE"
    return click.option("-o", "--output", type=kind, metavar=metavar, help=f"{into} {kind.accepted()}.", **attributes)


def folder_option(help: str = "Output folder.", **attributes: Any) -> Callable[..., Any]:
    """Return the option `-o FOLDER` of a command that always writes several files."""
    return click.option("-o", "--output", callback=_folder, metavar="FOLDER", help=help, **attributes)


def _folder(_: click.Context, __: click.Parameter, value: str | None) -> Path | None:
    if value and any(value.lower().endswith(extension) for extension in FORMATS) and not Path(value).is_dir():
        raise click.BadParameter(f"{value} is a file's name: several files are written, into a folder.")
    return Path(value) if value else None


def stdout_format(*forms: str) -> Callable[..., Any]:
    """Return the option `--format` for standard output; the format of a file is that of its extension."""
    return click.option(
        "--format", "form", type=click.Choice(forms), help="Format of standard output.  [default: text]"
    )


def form_of(output: Output | None, form: str | None) -> str:
    """Return the format to render. Raises UsageError if `--format` is not what the file's extension says."""
    if output and form not in (None, output.form):
        raise click.UsageError(f"{output.path} is {output.form} by its extension, not {form}: leave out --format.")
    return output.form if output else form or "text"


class Answer(NamedTuple):
    """What a command says: on standard output, or in the file of `-o`."""

    path: Path | None
    form: str
    kind: str
    """What a file must hold to be replaced, such as "analysis"."""
    mark: str
    """The mark of the inputs; "" if none is needed."""
    force: bool

    def check(self, *inputs: str | Path, page: str = "") -> None:
        """Raise TracekitError if the file cannot be written, is an input, or is another page than `page` of these."""
        from tracekit.reports.words import check_not_input, check_page, check_writable

        if self.path:
            check_writable(self.path)
            check_not_input(self.path, *inputs)
            if page and self.form == "html":
                check_page(self.path, page, self.mark, self.force)

    def give(self, text_of: Callable[[bool | None], str]) -> None:
        """Print the text, or write it. `text_of` is told whether to colour it; None: if the terminal can."""
        from tracekit.reports.words import write_atomically, write_text

        if self.path is None:
            click.echo(text_of(None), nl=False)
            return
        if self.form == "html":
            write_atomically(self.path, text_of(False))
        else:
            write_text(self.path, text_of(False), self.form, self.kind, self.mark, self.force)
        click.echo(f"Wrote {self.path}", err=True)


def answer_to(output: Output | None, form: str | None, kind: str, force: bool, *inputs: str | Path) -> Answer:
    """Return where and in which format to answer a question about the inputs."""
    from tracekit.reports.words import mark_of

    mark = mark_of(*inputs) if output or form == "html" else ""
    return Answer(output.path if output else None, form_of(output, form), kind, mark, force)


def as_json(option: str, output: Output | None, form: str | None) -> None:
    """Raise UsageError if an option whose answer is JSON is asked for in another format."""
    if form not in (None, "json") or (output and output.form != "json"):
        raise click.UsageError(f"{option} is JSON: leave out --format, and name a .json file with -o.")
