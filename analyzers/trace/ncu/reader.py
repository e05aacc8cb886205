"""Read a CSV report of Nsight Compute (`ncu --csv --page raw` or `--page details`) as a trace.

A report measures kernels separately and has no timeline. Its launches become one step, in sequence.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import problems
from tracekit.analyzers.trace.ncu import FORMAT
from tracekit.analyzers.trace.ncu.counters import counters, launches_of
from tracekit.analyzers.trace.ncu.lines import CAPABILITY, DEVICE_NAME, Launches
from tracekit.analyzers.trace.ncu.metrics import column
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
        metadata=Metadata(format=FORMAT, devices=tuple(_devices(launches, measured))),
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
