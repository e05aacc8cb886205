"""The difference between two runs in one sentence."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from tracekit.analyzers.compare import Comparison, Side
from tracekit.analyzers.results import OUTSIDE_MODEL
from tracekit.reports.compare.names import FAMILIES
from tracekit.reports.words import device, duration, model, printable, quantity, rows_of, times

_EQUAL = 0.01
_NOTABLE = 0.15
_MANY = 0.05
_SHOWN = 2
_HOST_CAUSES = ("dispatch", "sync", "launch", "edges", *OUTSIDE_MODEL)
_SINGULAR = {"attention", "softmax", "norm", "pooling", "optimizer", "loss", "communication"}


@dataclass(frozen=True)
class _Part:
    change_ns: float
    less_or_more: str
    """For example "the GPU waits {} for the host"."""
    why: str = ""
    saves: bool = False
    """Whether more of it makes the step shorter."""


def explained(comparison: Comparison) -> str:
    """Return the comparison in one sentence.

    For example "B is 1.8× as fast as A: GEMMs take 4.1 ms less (bf16 instead of fp32), and the GPU waits 2.0
    ms less for the host." For runs of different workloads, a sentence that says so comes first.
    """
    change = comparison.change_ns
    equal = comparison.within_spread or abs(comparison.speedup - 1) < _EQUAL
    scale = max(comparison.a.latency_ns, comparison.b.latency_ns) if equal else abs(change)
    parts = [part for part in _parts(comparison) if abs(part.change_ns) >= _NOTABLE * scale]
    along = [part for part in parts if equal or part.change_ns * change > 0][:_SHOWN]
    against = [] if equal else [part for part in parts if part.change_ns * change < 0][:1]
    reasons = f": {', and '.join(_spoken(part) for part in along)}" if along else ""
    but = f", although {_spoken(against[0])}" if against else ""
    warning = unlike(comparison)
    return printable(f"{warning}{' ' if warning else ''}{_verdict(comparison, equal)}{reasons}{but}.")


def causes(comparison: Comparison) -> str:
    """Return the causes of the change of latency: "the GPU waits 2.0 ms more for the host (293 launches ...)"."""
    change = comparison.change_ns
    parts = [part for part in _parts(comparison) if part.change_ns * change > 0]
    notable = [part for part in parts if abs(part.change_ns) >= _NOTABLE * abs(change)][:_SHOWN]
    return printable(", and ".join(_spoken(part) for part in notable))


def _verdict(comparison: Comparison, equal: bool) -> str:
    a, b = _named("A", comparison.a, comparison), _named("B", comparison.b, comparison)
    if equal:
        within = ", within the spread of their steps" if comparison.within_spread else ""
        return f"{b} is as fast as {a} ({times(comparison.speedup, comparison.speedup)}{within})"
    if comparison.speedup > 1:
        return f"{b} is {times(comparison.speedup, comparison.speedup)} as fast as {a}"
    return f"{b} takes {times(1 / comparison.speedup, 1 / comparison.speedup)} as long as {a}"


def _named(letter: str, side: Side, comparison: Comparison) -> str:
    """Return the letter of a side, with its device if the devices differ."""
    here, there = device(comparison.a.source), device(comparison.b.source)
    return f"{letter} ({device(side.source)})" if here != there and here and there else letter


def _parts(comparison: Comparison) -> list[_Part]:
    """Return families and causes by their change, largest first. All waits for the host are one part."""
    rows = comparison.difference
    busy = [_busy(row) for row in rows_of(rows[rows["kind"] == "busy"])]
    idle = rows[rows["kind"] == "idle"]
    by_host = idle["name"].isin(_HOST_CAUSES)
    where = "CPU" if comparison.b.source.device == "cpu" else "GPU"
    change = float(idle.loc[by_host, "change_ns"].sum())
    host = _Part(change, f"the {where} waits {{}} for the host", _launches(comparison, change))
    waits = {"transfer": "for transfers", "communication": "for collectives", "unknown": "for reasons unknown"}
    rest = [
        _Part(time, f"the {where} waits {{}} {waits[name]}") for name, time in _pairs(idle[~by_host]) if name in waits
    ]
    overlap = [_Part(time, "kernels overlap by {}", saves=True) for _, time in _pairs(rows[rows["kind"] == "overlap"])]
    return sorted([*busy, *overlap, host, *rest], key=lambda part: -abs(part.change_ns))


def _pairs(rows: pd.DataFrame) -> list[tuple[str, float]]:
    return list(zip(rows["name"], rows["change_ns"], strict=True))


def _busy(row: Any) -> _Part:
    verb = "takes" if row.name in _SINGULAR else "take"
    return _Part(row.change_ns, f"{FAMILIES.get(row.name, row.name)} {verb} {{}}", reason(row))


def reason(row: Any) -> str:
    """Return the difference in a family: presence, precision, FLOPs or number of kernels; "" if there is none."""
    if not row.a_kernels or not row.b_kernels:
        return "only in B" if not row.a_kernels else "only in A"
    if row.a_precision != row.b_precision and row.a_precision and row.b_precision:
        return f"{row.b_precision} instead of {row.a_precision}"
    more = row.b_flops - row.a_flops
    if row.a_flops > 0 and abs(more / row.a_flops) > _MANY and more * row.change_ns > 0:
        return f"{quantity(row.b_flops, 'FLOP')} instead of {quantity(row.a_flops, 'FLOP')}"
    return _counts(row.a_kernels, row.b_kernels, "kernels", row.change_ns)


def _launches(comparison: Comparison, change: float) -> str:
    a, b = comparison.a, comparison.b
    if (a.graph_share < 0.5) != (b.graph_share < 0.5) and (a.graph_share - b.graph_share) * change > 0:
        return f"{'A' if a.graph_share > b.graph_share else 'B'} launches CUDA graphs"
    return _counts(a.kernels, b.kernels, "launches", change)


def _counts(a: float, b: float, of_what: str, change: float) -> str:
    """Return the two counts, if their difference has the same sign as the change of time."""
    explains = a > 0 and abs(b / a - 1) > _MANY and (b - a) * change > 0
    return f"{b:,.0f} {of_what} instead of {a:,.0f}" if explains else ""


def _spoken(part: _Part) -> str:
    how = "less" if (part.change_ns < 0) != part.saves else "more"
    why = f" ({part.why})" if part.why else ""
    return part.less_or_more.format(f"{duration(abs(part.change_ns) / 1e3)} {how}") + why


_SETTINGS = ("workload", "batch_size", "seq_len", "new_tokens")
_WORDS = {"workload": "phase", "batch_size": "batch", "seq_len": "tokens", "new_tokens": "new tokens"}


def unlike(comparison: Comparison) -> str:
    """Return, for example, "A and B are different workloads (batch 1 and 8, fp32 and bf16).".

    Returns "" for runs of the same workload, also if either the GPU or the precision differs, but not both.
    """
    work = [*_models(comparison), *_settings(comparison)]
    machine = [*_pair(*(device(side.source) for side in _sides(comparison)))]
    machine += _pair(*(side.source.precision for side in _sides(comparison)))
    if not work and len(machine) < 2:
        return ""
    what = "different workloads" if work else "runs that differ in more than one respect"
    return f"A and B are {what} ({', '.join((*work, *machine))})."


def _sides(comparison: Comparison) -> tuple[Side, Side]:
    return comparison.a, comparison.b


def _models(comparison: Comparison) -> list[str]:
    """Return the models' names if tracekit captured both runs, else the classes of the root modules."""
    a, b = (side.source.capture for side in _sides(comparison))
    if a and b and a.model and b.model:
        return _pair(model(a.model), model(b.model))
    roots = comparison.layers[comparison.layers["parent"] < 0]
    types = [{str(each) for each in roots[f"{side}_type"] if each} for side in "ab"]
    return _pair(types[0].pop(), types[1].pop()) if len(types[0]) == len(types[1]) == 1 else []


def _settings(comparison: Comparison) -> list[str]:
    a, b = (side.source.capture for side in _sides(comparison))
    if a is None or b is None or not (a.workload and b.workload):
        return []
    pairs = ((name, getattr(a, name), getattr(b, name)) for name in _SETTINGS)
    return [f"{_WORDS[name]} {x} and {y}" for name, x, y in pairs if x != y]


def _pair(a: str, b: str) -> list[str]:
    return [f"{a} and {b}"] if a and b and a != b else []
