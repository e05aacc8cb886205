"""Writes docs/results.md from benchmarks/data: the gains of optimizations on an H200 beside their predictions.

python benchmarks/results.py
"""

from pathlib import Path

from outcomes import benched, fused, gains, own_models, several_gpus, swept, trained, verified

_PAGE = Path(__file__).parents[1] / "docs" / "results.md"
_HEAD = """# Results on an H200

Written by `python benchmarks/results.py` from `benchmarks/data`; do not edit. One NVIDIA H200, torch 2.11,
transformers 5.17, torchao 0.18, bitsandbytes 0.50.2, liger-kernel 0.8.5, random weights, 512 tokens unless another
length is given. Every prediction was made before the measurement, from a trace of the run without the optimization;
predictions of today's model are in [accuracy.md](accuracy.md#speed-up-of-optimizations-on-an-h200). *Same* is the
fraction of positions with the same most likely token. With random weights, many tokens are nearly equally likely, so a
value below 100 % does not apply to trained models. [verify.md](verify.md#how-it-is-measured) describes the
measurement."""


def text() -> str:
    chapters = (verified, benched, swept, trained, own_models, gains, fused, several_gpus)
    return "\n\n".join([_HEAD, *(each.chapter() for each in chapters)]) + "\n"


if __name__ == "__main__":
    _PAGE.write_text(text(), encoding="utf-8")
