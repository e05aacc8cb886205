"""The time of each part of GPT-2's forward pass on a T4, published and modelled."""

import re

import numpy as np

from accuracy.chapter import percent, table
from accuracy.published_runs import run
from tracekit.analyzers.predict import which

_PUBLISHED = {"blocks": 0.898, "LM head": 0.069, "attention": 0.376, "MLP": 0.256, "two norms": 0.225}
_LAYERS = {
    "blocks": r"\.h\.\d+",
    "LM head": r"^lm_head",
    "attention": r"\.h\.\d+\.attn",
    "MLP": r"\.h\.\d+\.mlp",
    "two norms": r"\.h\.\d+\.ln_[12]",
}
_OF_FORWARD = ("blocks", "LM head")


def split() -> str:
    """Shares of the forward (blocks, LM head), and of the blocks (their parts).

    Published times are those of modules, each waited for: an op takes its host's time or its kernel's, whichever is
    longer.
    """
    ops = run("t4", "gpt2", "decode", 1, 60, "fp32", "sdpa").ops
    times = np.maximum(ops.host_ns, ops.kernel_ns)
    of_layer = {
        name: float(times[which(ops.layer, re.compile(layers).search)].sum()) for name, layers in _LAYERS.items()
    }
    rows = []
    for name, published in _PUBLISHED.items():
        whole = float(times.sum()) if name in _OF_FORWARD else of_layer["blocks"]
        modelled = of_layer[name] / whole
        of = "forward" if name in _OF_FORWARD else "blocks"
        rows.append([name, of, percent(published, 1), percent(modelled, 1)])
    text = (
        "One token, fp32. Modules were timed separately, so an op takes its host time or its kernel time, whichever "
        "is longer. The modelled MLP is larger, and attention smaller, because GELU is eight kernels in today's GPT-2."
    )
    return f"{text}\n\n{table(['part', 'of', 'published', 'modelled'], rows, 2)}"
