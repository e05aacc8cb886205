"""Compares the sum of modelled kernel times of real steps with the measured sum."""

from pathlib import Path

from accuracy.chapter import percent, table
from tracekit.analyzers import analyze
from tracekit.analyzers.cost import estimate_ns
from tracekit.analyzers.predict import baseline
from tracekit.analyzers.trace import load

Step = tuple[str, float, float]
"""Name of the trace, modelled time and measured time in microseconds."""

_TRACES = Path(__file__).parents[2] / "examples" / "traces"
_LEFT_OUT = ("h200_gpt2_decode_eager_for-t4", "h200_compile-and-graph")
"""Left out: a run that is there twice, and one whose copies wait for the host."""


def steps() -> list[Step]:
    """Return the steps of examples/traces. No constant was fitted to them."""
    steps = []
    for file in sorted(_TRACES.glob("h200_*.json.gz")):
        name = file.name.removesuffix(".json.gz")
        trace = load(file)
        base = baseline(trace, analyze(trace)) if name not in _LEFT_OUT else None
        if base is None:
            continue
        ops = base.ops[base.ops.costed]
        if not len(ops):
            continue
        modelled = sum(estimate_ns(cost, base.gpu) for cost in ops.cost) / 1e3
        measured = ops.kernel_ns.sum() / 1e3
        steps.append((name, modelled, measured))
    return steps


def written(steps: list[Step]) -> str:
    rows = [(name, f"{a:,.0f}", f"{b:,.0f}", percent(a / b - 1)) for name, a, b in steps]
    head = ("trace", "modelled", "measured", "error")
    return f"{_INTRODUCTION}\n\n{table(head, rows, 3)}"


_INTRODUCTION = """Kernel time of one step, all ops with a formula, in µs. No constant was fitted on these kernels, but
some choices were made by looking at them: that a bias in fp32 rules out split-K, that small kernels find their inputs
in the L2, and which kernels casts, concatenation and dropout use."""
