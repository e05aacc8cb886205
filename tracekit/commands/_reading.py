"""What commands that read traces have in common."""

import atexit
import gc
import math
import os
import sys
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any

import click

_MOST_GIB = 1 << 30


def _gigabytes(value: float) -> float:
    """A finite number of GiB; more than the largest asks for no limit."""
    if math.isnan(value):
        raise click.BadParameter("nan is no number of GiB.")
    return min(value, _MOST_GIB)


GPU_FILE = "A TOML file with the data sheet of a GPU that tracekit does not know; its section names the GPU."
_OPTIONS = (
    click.option("--gpu", help="The GPU it ran on, when the trace does not say; else the GPU to project it to."),
    click.option("--gpu-file", metavar="FILE", help=GPU_FILE),
    click.option(
        "--counters", metavar="FILE", help="A report of Nsight Compute of the same run: measured FLOPs and bytes."
    ),
    click.option("--no-cache", is_flag=True, help="Read TRACE again, and keep nothing of it."),
    click.option(
        "--max-unpacked",
        type=click.FloatRange(min=0, min_open=True),
        callback=lambda *given: _gigabytes(given[-1]),
        default=16,
        show_default=True,
        metavar="GIB",
        help="Refuse a compressed file that unpacks to more.",
    ),
)


class Reading(click.Command):
    """A command that reads traces, and runs nothing of the user's."""

    def invoke(self, ctx: click.Context) -> Any:
        gc.set_threshold(250_000)  # A small trace is done before the first collection.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Matrices are not multiplied here: no threads to start.
        atexit.register(gc.freeze)  # Nor need what ends with the process be looked through for garbage.
        _load_pandas_alone()
        return super().invoke(ctx)


def _load_pandas_alone() -> None:
    """Where pyarrow is installed, pandas loads it with itself: 0.1 s and 40 MB, for nothing that is done here."""
    if not {"pandas", "pyarrow"} & sys.modules.keys():
        sys.modules["pyarrow"] = None  # type: ignore[assignment]
        try:
            import_module("pandas")
        finally:
            del sys.modules["pyarrow"]


def reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument TRACE, and --gpu, --gpu-file, --counters, --no-cache and --max-unpacked."""
    return click.argument("trace")(reduce(lambda done, option: option(done), reversed(_OPTIONS), command))
