"""Differences between two runs that make their latencies hard to compare."""

from tracekit.analyzers.comparison.comparison import Comparison, Side
from tracekit.reports.names import device, model

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
