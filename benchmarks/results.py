"""What optimizations gave on an H200, beside what was predicted: writes docs/results.md from benchmarks/data.

python benchmarks/results.py
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from accuracy.chapter import table
from accuracy.speedup_rows import cells

from analyzers.interval import Interval
from reports.numbers import ABSENT, duration, percent, quantity, significant, speedup, times
from tracekit.bench.row import Row, from_csv

_ROOT = Path(__file__).parents[1]
_BENCHES = "h200_bench_*.csv"
_HEAD = """# Results on an H200

Written by `python benchmarks/results.py` from `benchmarks/data`; do not edit. One NVIDIA H200, torch 2.11,
transformers 5.17, torchao 0.18, bitsandbytes 0.50.2, liger-kernel 0.8.5, random weights, 512 tokens. Every prediction
was made before the measurement, from a trace of the run without the optimization; what today's model predicts stands
in [accuracy.md](accuracy.md#speed-up-of-optimizations-on-an-h200). *Same*: positions with the same most likely token;
random weights make many tokens nearly equally likely, so that less than 100 % says little of a trained model. How it
was measured: [verify.md](verify.md#how-it-is-measured).
"""
_MARK = " ¹"
_NOTE = "¹ Timed after a profiler in the same process: what launches less gains too much."
_KEY = ("model", "workload", "dtype", "attention", "batch_size")

Cells = Mapping[str, str]


def main() -> None:
    stored = cells()
    sections = [_HEAD, *_speedups(stored), _NOTE, *_benches(sorted((_ROOT / "benchmarks" / "data").glob(_BENCHES)))]
    (_ROOT / "docs" / "results.md").write_text("\n\n".join(part.strip() for part in sections) + "\n", encoding="utf-8")


def _speedups(stored: Iterable[Cells]) -> list[str]:
    runs: dict[tuple[str, ...], list[Cells]] = defaultdict(list)
    for cell in stored:
        runs[tuple(cell[name] for name in _KEY)].append(cell)
    head = ["optimization", "predicted", "measured", "step", "off by", "same"]
    return [f"## {_title(key)}\n\n{table(head, map(_row, group), 5)}" for key, group in runs.items()]


def _title(key: tuple[str, ...]) -> str:
    model, workload, dtype, attention, batch = key
    return f"{model}, {workload}, {dtype}, batch {batch}" + (", attention written out" if attention == "eager" else "")


def _row(cell: Cells) -> list[str]:
    mark = "" if cell["timed"] == "unprofiled" else _MARK
    predicted = _interval(cell, "predicted", "expected")
    if cell["error"]:
        return [cell["optimization"], predicted, "not possible: copies from the host", *[ABSENT] * 3]
    gain = float(cell["measured_speedup"])
    return [
        cell["optimization"] + mark,
        predicted,
        times(gain, gain),
        f"{duration(float(cell['before_us']))} → {duration(float(cell['after_us']))}",
        f"{significant(100 * float(cell['relative_diff']))} %" if cell["relative_diff"] else ABSENT,
        percent(float(cell["agreement"])) if cell["agreement"] else ABSENT,
    ]


def _interval(cell: Cells, name: str, middle: str) -> str:
    if not cell[f"{name}_low"]:
        return ABSENT
    return speedup(Interval(*(float(cell[f"{name}_{end}"]) for end in ("low", middle, "high"))))


def _benches(paths: Sequence[Path]) -> list[str]:
    return [text for path in paths for text in _bench(from_csv(path))]


def _bench(rows: Sequence[Row]) -> list[str]:
    first = rows[0]
    head = [
        "configuration",
        "predicted",
        "measured",
        "step",
        "per second",
        "memory",
        "GPU",
        "largest batch",
        "perplexity",
    ]
    title = f"## Bench: {first.model}, {first.workload}, batch {first.batch_size}, {first.seq_len} tokens"
    failed = [f"{row.config}: {row.error}" for row in rows if row.error]
    return ["\n\n".join([title, table(head, map(_benched, rows), 8), *failed])]


def _benched(row: Row) -> list[str]:
    ends = (row.predicted_low, row.predicted, row.predicted_high)
    predicted = ABSENT if None in ends else speedup(Interval(*(float(end or 0) for end in ends)))
    return [
        row.config,
        predicted,
        times(row.speedup, row.speedup) if row.speedup else ABSENT,
        duration(row.latency_us) if row.latency_us else ABSENT,
        f"{significant(row.items_per_s)} {row.unit}" if row.items_per_s else ABSENT,
        quantity(row.peak_memory_bytes, "B") if row.peak_memory_bytes else ABSENT,
        percent(row.gpu_utilization) if row.gpu_utilization is not None else ABSENT,
        f"{row.largest_batch:,}" if row.largest_batch else ABSENT,
        f"{row.perplexity:,.0f}" if row.perplexity else ABSENT,
    ]


if __name__ == "__main__":
    main()
