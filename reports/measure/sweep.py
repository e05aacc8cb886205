"""The crossovers of a sweep as sentences, and its rows as a table."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pandas as pd

from tracekit.analyzers.predict import MEASURED, MODELLED, NONE, Crossover, Scaling, crossovers
from tracekit.reports.document import Table
from tracekit.reports.words import (
    ABSENT,
    duration,
    json_text,
    percent,
    quantity,
    significant,
    times,
)

_HEAD = ("GPU", ">batch", ">tokens", "apply", "source", ">step", ">per second", ">speed-up", ">memory", ">idle")
_MODELLED = "Modelled: every number is a prediction; nothing was measured."
_MEASURED = "Measured rows and sentences are marked; every other number is modelled, a prediction."
_POINTS = ["gpu", "apply", "source"]
_REFUSED = {MODELLED: "cannot be applied", MEASURED: "was not measured"}
_LACKS = {MODELLED: "refused", MEASURED: "not measured"}


def sentences(sweep: pd.DataFrame) -> list[str]:
    """Return a sentence for each crossover, one on how close predictions are to measurements, and one for each reason
    why an optimization cannot be applied or was not measured."""
    return [*dict.fromkeys(_sentence(each) for each in crossovers(sweep)), *_nearness(sweep), *_refusals(sweep)]


def basis(sweep: pd.DataFrame) -> str:
    """Return the sentence that states which numbers are predictions."""
    return _MEASURED if (sweep["source"] == MEASURED).any() else _MODELLED


def _nearness(sweep: pd.DataFrame) -> list[str]:
    """Return a sentence for each GPU with both predicted and measured points."""
    known = sweep[sweep["refused"] == ""]
    sides = [known[known["source"] == source] for source in (MODELLED, MEASURED)]
    both = sides[0].merge(sides[1], on=["gpu", "batch_size", "seq_len", "apply"], suffixes=("", "_measured"))
    return [_compared_with_measured(str(gpu), rows) for gpu, rows in both.groupby("gpu", sort=False)]


def _compared_with_measured(gpu: str, rows: pd.DataFrame) -> str:
    ratio, changed = rows["latency_ns_measured"] / rows["latency_ns"], rows[rows["apply"] != NONE]
    between = " to ".join(dict.fromkeys((significant(ratio.min()), significant(ratio.max()))))
    steps = f"A measured step on {gpu} took {between} times the predicted time."
    inside = changed["speedup_measured"].between(changed["speedup_low"], changed["speedup_high"]).sum()
    gains = f" {inside} of {len(changed)} measured speed-ups lie in their predicted intervals."
    return steps + (gains if len(changed) else "")


def _sentence(change: Crossover) -> str:
    at = f"{change.at:,} tokens" if change.axis == "seq_len" else f"batch {change.at:,}"
    where = f" at {_other(change)}" if change.other or change.axis == "seq_len" else ""
    if change.kind == "fits up to":
        largest = f"Batch {change.at:,} is the largest that fits" if change.at else "Not even batch 1 fits"
        return f"{largest} on {change.gpu}{where}."
    if change.kind == "host up to":
        return f"The host stops mattering at {at}{where} on {change.gpu}."
    gain = times(change.gain, change.gain) + (", measured" if change.source == MEASURED else "")
    return f"{change.apply} {change.kind} {at}{where} on {change.gpu} ({gain} there)."


def _other(change: Crossover) -> str:
    return f"batch {change.other:,}" if change.axis == "seq_len" else f"{change.other:,} tokens"


def _refusals(sweep: pd.DataFrame) -> list[str]:
    refused = sweep[sweep["refused"] != ""]
    points: dict[Any, int] = sweep.groupby(_POINTS, sort=False).size().to_dict()
    lines = []
    for (gpu, apply, source, why), rows in refused.groupby([*_POINTS, "refused"], sort=False):
        number = points[gpu, apply, source]
        everywhere = "" if len(rows) == number else f" at {len(rows)} of {number} points"
        lines.append(f"{apply} {_REFUSED[str(source)]} on {gpu}{everywhere}: {why}")
    return lines


def _cells(row: object) -> tuple[str, ...]:
    values = row._asdict()  # type: ignore[attr-defined]
    point = (values["gpu"], f"{values['batch_size']:,}", f"{values['seq_len']:,}", values["apply"], values["source"])
    if values["refused"]:
        return (*point, ABSENT, ABSENT, _LACKS[values["source"]], ABSENT, ABSENT)
    gain = times(values["speedup"], values["speedup"]) if values["apply"] != NONE else ABSENT
    memory = _known(values["memory_bytes"], _bytes) + ("" if values["fits"] else ", too much")
    speed = (duration(values["latency_ns"] / 1e3), significant(values["rate"]), gain)
    return (*point, *speed, memory, _known(values["idle_share"], percent))


def _bytes(value: float) -> str:
    return quantity(value, "B")


def _known(value: float, words: Callable[[float], str]) -> str:
    return ABSENT if math.isnan(value) else words(value)


def points(sweep: pd.DataFrame) -> Table:
    """Return the table of the points."""
    return Table(_HEAD, [_cells(row) for row in sweep.itertuples(index=False)])


_KINDS = ("latency_us", "efficiency")


def scaling_text(scaling: Scaling) -> str:
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
