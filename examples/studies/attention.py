"""Mistral-7B: attention written out and fused, in 16 bits and in 4-bit formats; and kernel time by op.

    python examples/studies/attention.py

The weights are random, so it is of speed only. `tracekit bench --weights pretrained --eval TEXT` adds perplexity.
"""

from pathlib import Path

from beside import run, show
from published import A100

import tracekit

_FOLDER = "studies/attention"

if __name__ == "__main__":
    rows = run(["mistral-7b"], ["fp16+eager", "fp16", "fp16+flash", "nf4+eager", "nf4", "int4"], _FOLDER)
    show(rows, A100, "an A100")
    kernels = tracekit.analyze(next(Path(_FOLDER, "traces").glob("*.json.gz"))).ops
    print(kernels.head(12).to_string())
