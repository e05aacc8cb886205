"""The options of every command that reads one trace into an analysis."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import click

_OPTIONS = (
    click.option("--gpu", help="The GPU it ran on, when the trace does not say; else the GPU to project it to."),
    click.option(
        "--counters", metavar="FILE", help="A report of Nsight Compute of the same run: measured FLOPs and bytes."
    ),
    click.option("--no-cache", is_flag=True, help="Read TRACE again, and keep nothing of it."),
    click.option(
        "--max-unpacked",
        type=click.FloatRange(min=0, min_open=True),
        default=16,
        show_default=True,
        metavar="GIB",
        help="Refuse a compressed file that unpacks to more.",
    ),
)


def reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument TRACE, and --gpu, --counters, --no-cache and --max-unpacked."""
    return click.argument("trace")(reduce(lambda done, option: option(done), reversed(_OPTIONS), command))
