"""A prediction of data-parallel scaling as text and as JSON."""

from dataclasses import asdict

from tracekit.analyzers.prediction.data_parallel.scaling import Scaling
from tracekit.reports.numbers import duration, quantity
from tracekit.reports.untrusted import json_text

_KINDS = ("latency_us", "efficiency")


def to_text(scaling: Scaling) -> str:
    """Return three lines: the step before and after, the throughput, and the added time."""
    took, kept = scaling.latency_us, scaling.efficiency
    return (
        f"{duration(scaling.one_us)} per step on one GPU, {duration(took.expected)} on each of {scaling.ranks} "
        f"({duration(took.low)} to {duration(took.high)})\n"
        f"{scaling.ranks * kept.expected:.2f} times the throughput of one GPU: {100 * kept.expected:.0f} % of each "
        f"({100 * kept.low:.0f} to {100 * kept.high:.0f} %)\n"
        f"{quantity(scaling.gradient_bytes, 'B')} of gradients in {scaling.buckets} buckets: "
        f"all-reduces take {duration(scaling.transfer_us)}, {duration(scaling.exposed_us)} of it exposed; "
        f"copies {duration(scaling.copies_us)}; host {duration(scaling.host_us)} more\n"
    )


def to_json(scaling: Scaling) -> str:
    """Return the values as JSON; intervals have low, expected and high."""
    values = asdict(scaling) | {name: asdict(getattr(scaling, name)) for name in _KINDS}
    return json_text({"schema_version": "1.0", **values})
