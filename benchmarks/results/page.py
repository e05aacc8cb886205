"""Writes docs/results.md from committed rows: gains that were measured on our GPUs, beside their predictions."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.results import benched, several_gpus, trained, verified

PAGE = Path(__file__).parents[2] / "docs" / "results.md"
_HEAD = """# Results on our GPUs

Written by `python -m benchmarks results.page` from `benchmarks/data`; do not edit. Unless another is named: one
NVIDIA H200, torch 2.11, transformers 5.17, torchao 0.18, bitsandbytes 0.50.2, liger-kernel 0.8.5, random weights, 512
tokens. Every prediction was made before the measurement, from a trace of the run without the optimization, by the
code of that day. The measured gains of [h200_speedups.csv](../benchmarks/data/h200_speedups.csv) are judged in
[accuracy](accuracy.md#speed-ups-on-an-h200); [verify](verify.md#how-it-is-measured) describes the measurement."""

_FILE = Path(__file__).parents[1] / "data" / "fused_kernels.json.gz"
_GPUS = ("h200", "h100")
_INTRODUCTION = """## Fused kernels

Device time of the kernels that [`tracekit fuse`](fusion.md) writes, divided by that of torch.compile's kernels for
the same ops: lowest to highest of the measured sizes of GPT-2, Llama-3.2-1B, Qwen3-0.6B and some others, in bf16.
Below 1, ours is faster. *Ops ÷ ours*: what eager PyTorch takes, divided by ours (H200). Inputs rotate through more
memory than the L2; all proofs passed on the GPU. Rows: `h200_fused` and `h100_fused` in
[data](../benchmarks/README.md#data)."""


def text() -> str:
    chapters = [verified.chapter(), benched.chapter(), benched.sweep(), trained.chapter()]
    return "\n\n".join([_HEAD, *chapters, fused_kernels(), several_gpus.chapter()]) + "\n"


def fused_kernels() -> str:
    rows = {gpu: _rows(gpu) for gpu in _GPUS}
    names = sorted({name for each in rows.values() for name in each})
    lines = [
        (f"{name}, {'training' if trains else 'inference'}", *_cells([rows[gpu][name, trains] for gpu in _GPUS]))
        for name, trains in names
    ]
    return f"{_INTRODUCTION}\n\n{table(['kernel', 'H200: ours ÷ compiled', 'H100', 'ops ÷ ours'], lines, 3)}"


def int4_decode() -> str:
    """Return the paragraphs on int4 layers and decode in CUDA graphs, for fusion.md."""
    measured = json.loads(gzip.decompress(_FILE.read_bytes()))["int4 decode"]
    layers = {row["name"]: row for row in measured["rows"] if row["part"] == "layer" and row["early"]}
    step = next(row for row in measured["rows"] if row["part"] == "decode" and row["early"])
    counts = _JOINED if _JOINED.keys() <= layers.keys() else _SEPARATE
    before, after = (sum(layers[name][of] * count for name, count in counts.items()) for of in ("fp16_us", "us"))
    cells = [
        (name, row["fp16_us"], row["us"], f"{row['gain']}×", row["of_bytes"],
         f"{row['ROWS']} / {row['DEEP']} / {row['num_warps']}")
        for name, row in layers.items()
    ]  # fmt: skip
    head = ["layer", "fp16, µs", "int4, µs", "gain", "of the ratio of bytes", "rows / reads / warps"]
    return _INT4.format(
        **{name: measured[name] for name in ("gpu", "torch", "date")}, **step, layers=table(head, cells, 5),
        how="compiled" if step["compiled"] else "not compiled", goal="reached" if step["of_bytes"] >= 0.8 else "missed",
        before=before * _BLOCKS / 1e3, after=after * _BLOCKS / 1e3,
        rest=(step["fp16_us"] - before * _BLOCKS) / 1e3,
    )  # fmt: skip


_SEPARATE = {"k": 2, "q, o": 2, "gate, up": 2, "down": 1}
_JOINED = {"q, k, v": 1, "q, o": 1, "gate + up": 1, "down": 1}
"""Layers of each shape in a block of Llama-3.2-3B, with separate projections and with joined ones."""
_BLOCKS = 28
_INT4 = """On an {gpu} (torch {torch}, {date}), a decode step of Llama-3.2-3B at batch 1 in CUDA graphs, {how},
takes {fp16_us:,.0f} µs in fp16 and {us:,.0f} µs with our int4 layers: **{gain:.2f}×**, which is {of_bytes:.2f} of the
ratio of bytes ({bytes:.2f}). The goal of 0.8 is {goal}. Of the step, the linear layers take {before:.2f} ms by the
times below, and {after:.2f} ms in int4; the other {rest:.2f} ms (norms, rotary, attention, the head in 16 bits) stay.

{layers}

Layers are timed over copies of their weights that exceed the L2."""


def _rows(gpu: str) -> dict[tuple[str, bool], list[dict[str, Any]]]:
    groups = defaultdict(list)
    for row in json.loads(gzip.decompress(_FILE.read_bytes()))[gpu]["rows"]:
        if row.get("compiled_us"):
            groups[row["template"], row["run"].endswith("train")].append(row)
    return groups


def _cells(groups: list[list[dict[str, Any]]]) -> list[str]:
    beside = [[row["after_us"] / row["compiled_us"] for row in rows] for rows in groups]
    return [*map(_span, beside), _span([row["before_us"] / row["after_us"] for row in groups[0]])]


def _span(ratios: list[float]) -> str:
    if not ratios:
        return "–"
    low, high = (f"{value:.2f}" for value in (min(ratios), max(ratios)))
    return low if low == high else f"{low} to {high}"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
