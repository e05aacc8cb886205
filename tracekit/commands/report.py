"""`tracekit report`."""

from pathlib import Path

import click

_SUFFIXES = (".gz", ".json", ".pt.trace")


@click.command()
@click.argument("trace")
@click.option("--gpu", help="The GPU it ran on, when the trace does not say; else the GPU to project it to.")
@click.option(
    "--counters", metavar="FILE", help="A report of Nsight Compute of the same run: measured FLOPs and bytes."
)
@click.option("--no-cache", is_flag=True, help="Read TRACE again, and keep nothing of it.")
@click.option(
    "--max-unpacked",
    type=click.FloatRange(min=0, min_open=True),
    default=16,
    show_default=True,
    metavar="GIB",
    help="Refuse a compressed file that unpacks to more.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Default: TRACE's name with .html, or report.html in a run's folder; of a URL, here.",
)
def command(
    trace: str, gpu: str | None, counters: str | None, no_cache: bool, max_unpacked: float, output: Path | None
) -> None:
    """Write the HTML report of TRACE (a file, a run's folder, or a URL): one page that needs no network."""
    from analyzers.readers.remote import is_url
    from reports.files import check_writable, write_atomically
    from reports.html import render
    from tracekit.analysis import analyze

    target = output or (_here(trace) if is_url(trace) else page_of(Path(trace)))
    check_writable(target)
    analysis = analyze(trace, gpu, counters, use_cache=not no_cache, max_bytes=int(max_unpacked * 2**30))
    write_atomically(target, render(analysis))
    click.echo(f"Wrote {target}", err=True)


def page_of(trace: Path) -> Path:
    """Where the report of a trace, or of a run's folder, stands."""
    if trace == Path("-"):
        return Path("report.html")
    if trace.is_dir():
        return trace / "report.html"
    if (trace.parent / "run.json").exists():
        return trace.parent / "report.html"
    return trace.with_name(f"{_stem(trace.name)}.html")


def _here(url: str) -> Path:
    from analyzers.readers.remote import shown

    return Path(f"{_stem(Path(shown(url)).name)}.html")


def _stem(name: str) -> str:
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name
