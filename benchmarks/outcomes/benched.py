"""Results of `tracekit bench` beside published ones of the same configurations."""

import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accuracy.chapter import table

import tracekit
from tracekit.analyzers.core import Interval
from tracekit.measure import Row, from_csv
from tracekit.reports.measure.bench import largest_batch
from tracekit.reports.words import ABSENT, duration, model, percent, quantity, significant, speedup, times

_ROOT = Path(__file__).parents[2]
_DATA = _ROOT / "benchmarks" / "data"
_STUDIES = _ROOT / "examples" / "studies"
_TRACES = _DATA / "h200_bench_traces"
_OPS = 8
_INTRODUCTION = """## Studies

The studies of `examples/studies`, measured by `tracekit bench`: speed-ups are relative to the first row of a table.
*Published*: tokens per second, and the speed-up relative to the same first row, on another GPU (in brackets) and with
other versions."""

Published = Mapping[str, Mapping[tuple[str, str], float]]


def chapter() -> str:
    benches = [of_file(path) for path in sorted(_DATA.glob("h200_bench_*.csv"))]
    return "\n\n".join([_INTRODUCTION, *benches, _split(_study("published.py")), _ops()])


def of_file(path: Path) -> str:
    published = _study("published.py")
    return bench(from_csv(path), {gpu: published[gpu] for gpu in ("A100", "T4")})


def bench(rows: Sequence[Row], published: Published) -> str:
    first = rows[0]
    columns = {
        "predicted": [_predicted(row) for row in rows],
        "measured": [times(row.speedup, row.speedup) if row.speedup else ABSENT for row in rows],
        "published": [_there(row, published) for row in rows],
        "step": [duration(row.latency_us) if row.latency_us else ABSENT for row in rows],
        f"{first.unit}/s": [significant(row.items_per_s) if row.items_per_s else ABSENT for row in rows],
        "memory": [quantity(row.peak_memory_bytes, "B") if row.peak_memory_bytes else ABSENT for row in rows],
        "GPU": [percent(row.gpu_utilization) if row.gpu_utilization is not None else ABSENT for row in rows],
        "largest batch": [largest_batch(row.largest_batch, row.predicted_largest_batch) for row in rows],
        "perplexity": [f"{row.perplexity:,.0f}" if row.perplexity else ABSENT for row in rows],
    }
    said = {name: cells for name, cells in columns.items() if set(cells) != {ABSENT}}
    body = zip([row.config for row in rows], *said.values(), strict=True)
    run = f"{model(first.model)}, {first.workload}, batch {first.batch_size}, {first.seq_len} tokens"
    title = f"### {run}, over {first.config}"
    failed = [f"{row.config}: {row.error}" for row in rows if row.error]
    return "\n\n".join([title, table(["configuration", *said], body, len(said)), *failed])


def _predicted(row: Row) -> str:
    ends = (row.predicted_low, row.predicted, row.predicted_high)
    return ABSENT if None in ends else speedup(Interval(*(float(end or 0) for end in ends)))


def _there(row: Row, published: Published) -> str:
    """99.6/s, 1.04× (A100), of tokens generated; the order of a configuration's parts does not matter."""
    if row.workload == "train":
        return ABSENT
    gains = []
    for gpu, numbers in published.items():
        rates = {(name, frozenset(config.split("+"))): rate for (name, config), rate in numbers.items()}
        rate, first = (rates.get((row.model, frozenset(name.split("+")))) for name in (row.config, row.first))
        if rate:
            gain = f", {times(rate / first, rate / first)}" if first and row.config != row.first else ""
            gains.append(f"{rate:g}/s{gain} ({gpu})")
    return "; ".join(gains) or ABSENT


def _split(published: Mapping[str, Any]) -> str:
    """Compare the parts of GPT-2's forward pass with the times of modules that were timed one by one."""
    split = _study("compiled.py")["split"]
    trace = _TRACES / "gpt2-decode-1-100.json.gz"
    kernels, host = split(trace), split(trace, "cpu_ns")
    rows = [
        [name, of, percent(kernels[name]), percent(host[name]), percent(share)]
        for of, shares in (("forward", published["T4_FORWARD"]), ("blocks", published["T4_BLOCK"]))
        for name, share in shares.items()
    ]
    head = ["part", "of the", "kernels here", "host here", "published (T4, synchronized after each)"]
    return f"### Time of a decode step of GPT-2 in fp32, by part\n\n{table(head, rows, 3)}"


def _ops() -> str:
    ops = tracekit.analyze(_TRACES / "mistral-7b-decode-1-100.json.gz").ops.head(_OPS)
    head = ["op", "calls", "kernel time", "share", "bound by"]
    columns = zip(ops.name, ops.calls, ops.busy_ns, ops.share, ops.bound, strict=True)
    rows = ([f"`{op}`", calls, duration(ns / 1e3), percent(share), bound] for op, calls, ns, share, bound in columns)
    return f"### Kernel time of a decode step of Mistral-7B in fp16, by op\n\n{table(head, rows, 4)}"


def _study(name: str) -> dict[str, Any]:
    """Load the definitions of a study, which imports its neighbours."""
    sys.path.insert(0, str(_STUDIES))
    try:
        return runpy.run_path(str(_STUDIES / name))
    finally:
        sys.path.remove(str(_STUDIES))
