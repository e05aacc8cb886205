"""GPT-2 in fp32 and fp16, compiled and not, and where its forward spends its time.

    python examples/studies/compiled.py

Published: generation on a T4, and the split of a forward by modules that were each waited for.
"""

from pathlib import Path

from beside import run, show
from published import T4, T4_BLOCK, T4_FORWARD

import tracekit

_LAYERS = {
    "blocks": r"transformer\.h\.\d+",
    "LM head": r"lm_head",
    "attention": r"transformer\.h\.\d+\.attn",
    "MLP": r"transformer\.h\.\d+\.mlp",
    "two norms": r"transformer\.h\.\d+\.ln_[12]",
}
_FOLDER = "studies/compiled"


def split(trace: Path, time: str = "busy_ns") -> dict[str, float]:
    """GPU time (or "cpu_ns", the host's) below the layers of each name, as a share of the forward, or of its blocks."""
    layers = tracekit.analyze(trace).layers
    times = {name: float(layers[time][layers.path.str.fullmatch(part)].sum()) for name, part in _LAYERS.items()}
    whole = float(layers[time][layers.depth == 0].sum())
    return {name: time / (whole if name in T4_FORWARD else times["blocks"]) for name, time in times.items()}


if __name__ == "__main__":
    show(run(["gpt2"], ["fp32", "fp16", "compile", "fp16+compile"], _FOLDER), T4, "a T4")
    trace = next(Path(_FOLDER, "traces").glob("gpt2-decode-*.json.gz"))
    here, host = split(trace), split(trace, "cpu_ns")
    for name, there in {**T4_FORWARD, **T4_BLOCK}.items():
        of = "forward" if name in T4_FORWARD else "blocks"
        print(f"{name:10} {here[name]:6.1%} of the {of} here (of host time {host[name]:.1%}), {there:6.1%} published")
