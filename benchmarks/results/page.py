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
    tried = {
        row["name"]: min(row["all"], key=lambda each: each[-1]) for row in measured["rows"] if row["part"] == "tried"
    }
    layers = {row["name"]: row for row in measured["rows"] if row["part"] == "layer" and row["early"]}
    step = next(row for row in measured["rows"] if row["part"] == "decode" and row["early"])
    parts = [row for row in measured["rows"] if row["part"] == "step"]
    sdpa = next(row["us"] for row in parts if (row["format"], row["attention"]) == ("fp16", "sdpa"))
    before = sum(layers[name]["fp16_us"] * count for name, count in _JOINED.items())
    after = sum(tried[name][-1] * count for name, count in _JOINED.items())
    cells = [
        (name, row["fp16_us"], us, f"{row['fp16_us'] / us:.2f}×", f"{row['of_bytes'] * row['us'] / us:.2f}",
         " / ".join(map(str, launch)), row["fp16_TB/s"], f"{row['TB/s'] * row['us'] / us:.2f}")
        for name, row in layers.items() if name not in _APART for *launch, us in [tried[name]]
    ]  # fmt: skip
    head = [
        "layer",
        "fp16, µs",
        "int4, µs",
        "gain",
        "of the ratio of bytes",
        "rows / steps / warps",
        "TB/s, fp16",
        "int4",
    ]
    return _INT4.format(
        **{name: measured[name] for name in ("gpu", "torch", "date")}, **{**step, "gain": step["fp16_us"] / step["us"]},
        sdpa=sdpa, layers=table(head, cells, 7),
        goal="reached" if step["of_bytes"] >= 0.8 else "missed", before=before * _BLOCKS / 1e3,
        after=after * _BLOCKS / 1e3, rest=(step["fp16_us"] - before * _BLOCKS) / 1e3,
        rest_after=(step["us"] - after * _BLOCKS) / 1e3,
    )  # fmt: skip


_JOINED = {"q, k, v": 1, "q, o": 1, "gate + up": 1, "down": 1}
"""Layers of each shape in a block of Llama-3.2-3B."""
_APART = {"gate, up", "k"}
"""Layers that are joined in the step."""
_BLOCKS = 28
_INT4 = """On an {gpu} (torch {torch}, {date}), a decode step of Llama-3.2-3B at batch 1, compiled and in CUDA
graphs, both with our attention of one token, takes {fp16_us:,.0f} µs in fp16 (with PyTorch's attention {sdpa:,.0f})
and {us:,.0f} µs with our int4 layers of five kernels: **{gain:.2f}×**, which is {of_bytes:.2f} of the ratio of bytes
({bytes:.2f}). The goal of 0.8 is {goal}. By the times below, linear layers take {before:.2f} ms of the step, and
{after:.2f} ms in int4; the rest (attention, the head in 16 bits; in fp16, norms and gates) takes {rest:.2f} ms, and
{rest_after:.2f} ms beside int4.
Layers, in an earlier session: over weights beyond the L2, the fastest of 3 to 4 launches.

{layers}"""


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
