"""Read a CSV report of Nsight Compute (`ncu --csv --page raw` or `--page details`) as a trace.

A report measures kernels separately and has no timeline. Its launches become one step, in sequence.
"""

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Floats, InputError, tables
from tracekit.analyzers.trace import problems
from tracekit.analyzers.trace.ncu import metrics, pages
from tracekit.analyzers.trace.ncu import pages as csv_lines
from tracekit.analyzers.trace.ncu.metrics import column
from tracekit.analyzers.trace.ncu.pages import (
    BLOCK,
    CAPABILITY,
    DEVICE_ID,
    DEVICE_NAME,
    GRID,
    IDENTITY,
    NAME,
    STREAM,
    Launches,
)
from tracekit.analyzers.trace.source import Source
from tracekit.analyzers.trace.trace import DEVICE, HOST, DeviceProperties, Metadata, Trace


def read(source: Source) -> Trace:
    """Read a report. Raises InputError if no launch can be read."""
    try:
        launches = launches_of(b"".join(source.blocks()))
    except ValueError:
        launches = None
    if launches is None or launches.identity.empty:
        raise InputError(
            f"{source.name} contains no kernel that Nsight Compute measured.",
            "There is no readable row below its header.",
            "Export it again: ncu --import report.ncu-rep --csv --page raw.",
        )
    return trace_of(launches, source.damage)


def trace_of(launches: Launches, damage: str = "") -> Trace:
    """Return a trace that consists of these launches, with their counters."""
    measured, impossible = counters(launches)
    return Trace(
        metadata=Metadata(format="ncu", devices=tuple(_devices(launches, measured))),
        host=HOST.empty(),
        device=_device(measured),
        problems=problems.table(
            [
                problems.problem("no-timeline", len(measured)),
                problems.problem(
                    "truncated", int(launches.cut or bool(damage)), damage or "its last launch is incomplete"
                ),
                problems.problem("skipped-events", launches.unreadable),
                problems.problem("impossible-values", impossible),
                problems.problem("missing-duration", int((measured["duration_ns"] < 0).sum())),
            ]
        ),
        counters=measured,
    )


def _device(measured: pd.DataFrame) -> pd.DataFrame:
    duration = np.maximum(measured["duration_ns"].to_numpy(), 0)
    return DEVICE.partial(
        {
            "start_ns": np.cumsum(duration) - duration,
            "duration_ns": duration,
            "device": measured["device"],
            "stream": measured["stream"],
            "category": pd.Categorical(["kernel"] * len(measured)),
            "name": measured["name"],
            "blocks": measured["blocks"],
            "threads_per_block": measured["threads_per_block"],
            "registers": measured["registers"],
            "occupancy": measured["occupancy"],
        }
    )


def _devices(launches: Launches, measured: pd.DataFrame) -> Iterator[DeviceProperties]:
    """Yield each device once, as described by its first launch."""
    sms, memory = (
        np.nan_to_num(column(launches.metrics, name)) for name in ("launch__sm_count", "device__attribute_total_memory")
    )
    for row in measured.index[~measured["device"].duplicated()]:
        yield DeviceProperties(
            id=int(measured["device"][row]),
            name=str(launches.identity[DEVICE_NAME][row]),
            sms=int(min(max(sms[row], 0), 1e6)),
            compute_capability=_capability(str(launches.identity[CAPABILITY][row])),
            memory_bytes=int(min(max(memory[row], 0), 1e15)),
        )


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    known = major.isascii() and minor.isascii() and major.isdigit() and minor.isdigit() and len(text) < 8
    return (int(major), int(minor)) if known else (0, 0)


_NUMBER = re.compile(r"\d+")
_MOST_DIGITS = 10
_LARGEST_SHARE = 1.01
_MOST_BYTES_PER_SECOND = 1e15
_MOST_FLOPS_PER_SECOND = 1e18
_LONGEST_NS = 86_400e9


def launches_of(data: bytes) -> Launches:
    """Read the launches of a CSV of either page. Raises ValueError without a header."""
    lines = csv_lines.split(data, lambda name: name in ("ID", *IDENTITY) or metrics.wanted(name))
    page = pages.details_launches if lines.of_details else pages.raw_launches
    return page(lines, metrics.wanted)


def counters(launches: Launches) -> tuple[pd.DataFrame, int]:
    """Return the table COUNTERS, and the number of values that were left out because they are impossible."""
    identity, measured = launches.identity, launches.metrics
    flops, moved = metrics.flops_by_pipe(measured), metrics.memory_bytes(measured)
    seconds = metrics.column(measured, "gpu__time_duration.sum")
    most_flops, most_bytes = _most(seconds, _MOST_FLOPS_PER_SECOND), _most(seconds, _MOST_BYTES_PER_SECOND)
    plausible = {
        **{f"{pipe}_flops": _plausible(flops[pipe], most_flops) for pipe in metrics.PIPES},
        "flops": _plausible(flops["all"], most_flops),
        "dram_read_bytes": _plausible(moved["read"], most_bytes),
        "dram_write_bytes": _plausible(moved["write"], most_bytes),
        "dram_bytes": _plausible(moved["all"], most_bytes),
        "l2_bytes": _plausible(moved["l2"], most_bytes),
        "dram_throughput": _plausible_share(_fraction_of_peak(measured, "gpu__dram_throughput", "dram__throughput")),
        "sm_throughput": _plausible_share(_fraction_of_peak(measured, "sm__throughput")),
        "occupancy": _plausible_share(metrics.share(measured, "sm__warps_active.avg.pct_of_peak_sustained_active")),
    }
    table = COUNTERS.frame(
        {
            "name": identity[NAME],
            "grid": identity[GRID],
            "block": identity[BLOCK],
            "blocks": _product(identity[GRID]),
            "threads_per_block": _product(identity[BLOCK]),
            "device": _integer(identity[DEVICE_ID]),
            "stream": _integer(identity[STREAM]),
            "registers": _whole(metrics.column(measured, "launch__registers_per_thread"), limit=1024),
            "duration_ns": _whole(seconds * 1e9, limit=_LONGEST_NS),
            **{name: values for name, (values, _) in plausible.items()},
            "precision": metrics.main_precision(measured),
        }
    )
    return table, sum(impossible for _, impossible in plausible.values())


def _most(seconds: Floats, rate: float) -> Floats:
    """Return the largest plausible amount in each kernel's time, or without a time in the longest plausible time."""
    longest = _LONGEST_NS / 1e9
    return np.where((seconds > 0) & (seconds < longest), seconds, longest) * rate


def _plausible(values: Floats, most: Floats) -> tuple[Floats, int]:
    """Return the values with NaN for those that are negative or above `most`, and the number of these."""
    impossible = (values < 0) | (values > most)
    return np.where(impossible, np.nan, values), int(impossible.sum())


def _plausible_share(values: Floats) -> tuple[Floats, int]:
    """Check shares, which may exceed 1 slightly because of rounding, and limit them to 1."""
    shares, impossible = _plausible(values, np.full(len(values), _LARGEST_SHARE))
    return np.minimum(shares, 1.0), impossible


def _fraction_of_peak(measured: pd.DataFrame, *names: str) -> Floats:
    return metrics.share(measured, *(f"{name}.avg.pct_of_peak_sustained_elapsed" for name in names))


def _product(texts: pd.Series) -> list[int]:
    """Multiply the three numbers of each size such as "(8, 36, 1)"; -1 for any other text."""
    products = {text: _size(_NUMBER.findall(text)) for text in texts.unique()}
    return [products[text] for text in texts]


def _size(numbers: list[str]) -> int:
    sizes = [int(number) for number in numbers if len(number) <= _MOST_DIGITS]
    fits = len(sizes) == len(numbers) and _is_size(sizes)
    return sizes[0] * sizes[1] * sizes[2] if fits else -1


def _is_size(sizes: list[int]) -> bool:
    return len(sizes) == 3 and all(0 < size < 1 << 31 for size in sizes) and sizes[0] * sizes[1] * sizes[2] < 1 << 62


def _integer(texts: pd.Series) -> list[int]:
    return [int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1 for text in texts]


def _whole(values: Floats, limit: float) -> npt.NDArray[np.int64]:
    """Round values; -1 for values that are absent, negative, or not below the limit."""
    usable = np.isfinite(values) & (values >= 0) & (values < limit)
    return np.where(usable, np.rint(np.where(usable, values, 0.0)), -1).astype(np.int64)


COUNTERS = tables(__file__)["counters"]
