"""The options that commands share: what they read, and the lines that they say."""

import atexit
import gc
import math
import os
import sys
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.analyzers.core import InputError
from tracekit.run import ANALYSIS, GRAPH, REPORT, RUN, TRACE

if TYPE_CHECKING:
    from tracekit.analyzers.results import Analysis


FORCE = click.option("--force", is_flag=True, help="Replace an existing output, even if it contains something else.")


def existing(path: Path) -> Path:
    """Return the path of a file. Raises InputError if there is none."""
    if path.is_file():
        return path
    raise InputError(f"{path} does not exist.", "", "Name a run's folder, a trace, or a page.")


def verbose() -> bool:
    """Return whether `tracekit -v` was called."""
    return bool(click.get_current_context().find_root().params["verbose"])


def say(text: str) -> None:
    """Print one line of progress on stderr."""
    click.echo(f"tracekit: {text}", err=True)


def show_outputs(analysis: "Analysis", folder: Path) -> None:
    """Print a summary of about ten lines, the files written, and the next command to try."""
    from tracekit.reports.answer import terminal_document
    from tracekit.reports.document import render

    click.echo(render(terminal_document(analysis, brief=True), "text"), nl=False)
    written = [name for name in (REPORT, TRACE, GRAPH, ANALYSIS, RUN) if (folder / name).is_file()]
    click.echo(f"\nWritten to {folder}/: {', '.join(written)}")
    click.echo(f"Next: tracekit open {folder}, or everything as text: tracekit analyze {folder}")


_MOST_GIB = 1 << 30


def _gigabytes(value: float) -> float:
    """Return `value` in GiB, at most `_MOST_GIB`. Raises BadParameter for NaN."""
    if math.isnan(value):
        raise click.BadParameter("nan is not a number of GiB.")
    return min(value, _MOST_GIB)


def _most_unpacked_gib() -> float:
    from tracekit.analyzers.core import UNPACKED

    return UNPACKED.value / 2**30


EVAL = "What quality is judged by: a text, a file of token ids (.npy, .json), or a function (module:name)."
SYNCHRONIZE = "Also time each module between synchronizations of the device, as tutorials do."
GPU_FILE = "A TOML file that describes GPUs which tracekit does not know; each section is named after its GPU."


def _use_ops(ctx: click.Context, _: click.Parameter, file: str | None) -> None:
    if file and not ctx.resilient_parsing:
        from tracekit.analyzers.cost import ops_from

        ctx.with_resource(ops_from(file))


OPS_FILE = click.option(
    "--ops-file",
    metavar="FILE",
    expose_value=False,
    callback=_use_ops,
    help="A TOML file with the costs of ops that tracekit does not know (docs/plugins.md).",
)
LATENCY = click.option(
    "--latency-ms",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MS",
    help="Latency of a step without a profiler, as you measured it.",
)
_OPTIONS = (
    click.option("--gpu", help="The GPU of the run, if the trace does not state it; else the GPU to project to."),
    click.option("--gpu-file", metavar="FILE", help=GPU_FILE),
    OPS_FILE,
    click.option(
        "--counters", metavar="FILE", help="An Nsight Compute report of the same run, with measured FLOPs and bytes."
    ),
    click.option(
        "--captures",
        multiple=True,
        metavar="PATH",
        help="A trace, or a folder of traces, in which the captures of TRACE's CUDA graphs were recorded (repeatable).",
    ),
    LATENCY,
    click.option("--no-cache", is_flag=True, help="Read TRACE again, and do not use or write the cache."),
    click.option(
        "--max-unpacked",
        type=click.FloatRange(min=0, min_open=True),
        callback=lambda *given: _gigabytes(given[-1]),
        default=_most_unpacked_gib,
        metavar="GIB",
        help="Refuse a compressed file that unpacks to more than this. Default: 16.",
    ),
)


class Reading(click.Command):
    """A command that reads traces and runs no user code."""

    def invoke(self, ctx: click.Context) -> Any:
        gc.set_threshold(250_000)  # A small trace is analyzed before the first collection.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # No matrices are multiplied: its threads are not needed.
        atexit.register(gc.freeze)  # At exit, no garbage collection is needed.
        _load_pandas_alone()
        return super().invoke(ctx)


def _load_pandas_alone() -> None:
    """Import pandas without pyarrow, which pandas would load (0.1 s, 40 MB) and these commands do not need."""
    if not {"pandas", "pyarrow"} & sys.modules.keys():
        sys.modules["pyarrow"] = None  # type: ignore[assignment]
        try:
            import_module("pandas")
        finally:
            del sys.modules["pyarrow"]


def reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add to a command the argument TRACE and the options of reading and analyzing it."""
    return click.argument("trace")(reduce(lambda done, option: option(done), reversed(_OPTIONS), command))


def analysis_of(trace: str, *, no_cache: bool, max_unpacked: float, **options: Any) -> "Analysis":
    """Return the analysis of TRACE with the options that `reading` adds."""
    from tracekit.answer import analyze

    return analyze(trace, use_cache=not no_cache, max_bytes=most_bytes(max_unpacked), **options)


def most_bytes(max_unpacked: float) -> int:
    """Return the limit of `--max-unpacked` in bytes."""
    return int(max_unpacked * 2**30)
