"""Measures the wall times that docs/performance.md states, as its tables. Run it on a machine that does nothing else.

    python -m benchmarks performance.wall_times FOLDER [--megabytes 50 ...] [--peers PEERS_PYTHON] [--ranks]

Replicated traces are written into FOLDER (up to 3.7 GB by default) and kept for the next call. `--peers` is that of
reading.py. With `--ranks`, ranks_scale.py is run, too. Each line is printed when it is measured.
"""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import click

from benchmarks.performance.reading import Run, Way, run
from benchmarks.performance.replicate import SAMPLE, replicate

_SMALL = ("h200_bert_prefill", "h200_gpt2_prefill", "h200_gpt2_decode", "h200_llama-1b_prefill")
_QUIET = 0.5
"""Load average above which a machine is not quiet."""


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--megabytes", multiple=True, type=int, default=(50, 100, 500, 1000, 2000), show_default=True)
@click.option("--peers", default=sys.executable, help="A Python that has the peers.  [default: this one]")
@click.option("--ranks", is_flag=True, help="Also run ranks_scale.py.")
def main(folder: Path, megabytes: tuple[int, ...], peers: str, ranks: bool) -> None:
    """Print the tables of wall times, with replicated traces in FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    click.echo(f"{os.cpu_count()} cores, load {load:.1f}" + (": not quiet, times will be too long" * (load > _QUIET)))
    _head("command", "start")
    _row("tracekit --help", _best(["--help"], 20))
    _row("tracekit --version", _best(["--version"], 20))
    _head("trace, MB as JSON", "analyze --no-cache")
    for name in _SMALL:
        path = SAMPLE.parent / f"{name}.json.gz"
        _row(f"{name}, {_unpacked_mb(path):.2f}", _best(["analyze", "--no-cache", str(path)], 20))
    for size in sorted(megabytes):
        path = _replicated(folder, size)
        _row(f"{path.stat().st_size / 1e6:.0f}", _best(["analyze", "--no-cache", str(path)], 3))
    _script("reading.py", str(_replicated(folder, 500)), "--peers", peers)
    if ranks:
        _script("ranks_scale", str(SAMPLE), "--ranks", "20", "40", "--workers", "1", "2")


def _head(first: str, what: str) -> None:
    click.echo(f"\n{what}\n\n| {first} | wall s | CPU s | peak MB |\n|---|---|---|---|")


def _row(name: str, best: Run) -> None:
    click.echo(f"| {name} | {best.wall_s:.2f} | {best.cpu_s:.2f} | {best.peak_mb:.0f} |")


def _best(words: list[str], runs: int) -> Run:
    """Return the quickest of this many runs, after one that warms up."""
    command = [sys.executable, "-m", "tracekit", *words]
    timed = [run(Way("tracekit", command, {})) for _ in range(runs + 1)]
    for each in timed:
        if each.failed:
            raise click.ClickException(each.failed)
    return min(timed[1:])


def _replicated(folder: Path, megabytes: int) -> Path:
    path = folder / f"{megabytes}.json"
    if not path.exists():
        replicate(SAMPLE, path, megabytes)
    return path


def _unpacked_mb(path: Path) -> float:
    with gzip.open(path) as file:
        return len(file.read()) / 1e6


def _script(name: str, *words: str) -> None:
    click.echo(f"\n{name}\n")
    subprocess.run([sys.executable, "-m", f"benchmarks.performance.{name}", *words], check=True)


if __name__ == "__main__":
    main()
