"""Mistral-7B: attention written out and fused, in 16 bits and in 4-bit formats; perplexity, and kernel time by op.

    python examples/studies/attention.py [TEXT]

Perplexity is of TEXT, by default a sample that comes along. With random weights only its change means anything; give
--weights pretrained to `tracekit bench` where the weights are at hand.
"""

import sys
from pathlib import Path

from beside import run, show
from published import A100

import tracekit

_FOLDER = "studies/attention"

if __name__ == "__main__":
    text = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    rows = run(["mistral-7b"], ["fp16+eager", "fp16", "fp16+flash", "nf4+eager", "nf4", "int4"], _FOLDER, text)
    show(rows, A100, "an A100")
    for row in rows:
        if row.perplexity:
            print(f"{row.config:12} perplexity {row.perplexity:,.1f}")
    kernels = tracekit.analyze(next(Path(_FOLDER, "traces").glob("*.json.gz"))).ops
    print(kernels.head(12).to_string())
