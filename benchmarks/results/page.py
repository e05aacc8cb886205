"""Writes docs/results.md from committed rows: gains that were measured on our GPUs, beside their predictions."""

from pathlib import Path

from benchmarks.results import benched, fused, several_gpus, trained, verified

PAGE = Path(__file__).parents[2] / "docs" / "results.md"
_HEAD = """# Results on our GPUs

Written by `python -m benchmarks results.page` from `benchmarks/data`; do not edit. Unless another is named: one
NVIDIA H200, torch 2.11, transformers 5.17, torchao 0.18, bitsandbytes 0.50.2, liger-kernel 0.8.5, random weights, 512
tokens. Every prediction was made before the measurement, from a trace of the run without the optimization, by the
code of that day. The measured gains of [h200_speedups.csv](../benchmarks/data/h200_speedups.csv) are judged in
[accuracy](accuracy.md#speed-ups-on-an-h200); [verify](verify.md#how-it-is-measured) describes the measurement."""


def text() -> str:
    chapters = [verified.chapter(), benched.chapter(), benched.sweep(), trained.chapter()]
    return "\n\n".join([_HEAD, *chapters, fused.chapter(), several_gpus.chapter()]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
