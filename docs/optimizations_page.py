"""The page of optimizations: an introduction, and a section from the docstring of each class."""

from inspect import cleandoc

HEAD = """# Optimizations

Generated from the classes in `tracekit/advise/optimizations/` and the kinds in `tracekit/advise/waste/kinds.toml`.

Each section describes an optimization: its changes to the op list, when it hurts, and the sources of its numbers.
[Predictions](predictions.md) describes how an op list becomes a latency, and [accuracy](accuracy.md) the errors of the
results. `tracekit predict TRACE --apply` takes the ids, several of them joined with `+`.

"Measured on an H200 (host)" refers to rows of `benchmarks/data/h200_speedups.csv` (torch 2.11,
transformers 5.17, torchao 0.18, bitsandbytes 0.50.2, liger-kernel 0.8.5). Those constants are fitted to them, so
their rows on the page about accuracy are no test.

A *launch* is a piece of device work. A *plain launch* is the host time of a launch with no module call and no Python
before it: 5.4 µs on the host of our H200 runs, and on another host in proportion to the duration of its launch calls.
Kernel times change by the ratio *modelled after ÷ modelled before*; added kernels take their modelled time. A number
with an interval takes one end in the low outcome of a prediction and the other end in the high one.
"""
_WASTE = "Work that a better program would not do"
GROUPS = {
    "Around the model": (
        *("data-loading", "preprocessing", "recompiling", "avoid-syncs", "pinned-copies", "offload-overlap"),
        *("overlap-communication", "graph-not-replaying"),
    ),
    _WASTE: (),
    "Dtypes": ("half-precision", "mixed-precision", "tf32"),
    "Attention and its cache": ("sdpa", "fused-attention-fallback", "static-cache"),
    "Rows": ("batching", "paged-kv", "speculative-decoding"),
    "Weight formats": (
        *("int8-weight-only", "int4-weight-only", "nf4", "llm-int8", "fp8-dynamic", "int8-dynamic"),
        *("packed-int4", "packed-int8", "awq", "smoothquant"),
    ),
    "Launches and fusion": ("fused-kernels", "pad-shapes", "channels-last", "compile", "max-autotune", "cuda-graphs"),
    "Training": ("gradient-checkpointing", "fused-optimizer"),
}
NOTES = {
    "Around the model": "Optimizations of the model's ops do not change host work outside the model "
    "([causes](causes.md)). The following ones simulate the step with less of it. The high end of the interval is the "
    "step without it, the limit given by the critical path. `tracekit verify` cannot change the code around a "
    "model: the advice shows the code.\n",
    _WASTE: "Each kind is a detector, a sentence and the simulated step without that work; it is refused where there "
    "is none. [Diagnosis](diagnosis.md#kinds-of-waste) tells each from its look-alike.\n",
    "Weight formats": "One at a time, for inference, from 16 bits. They replace `nn.Linear`; torchao leaves "
    "GPT-2's `Conv1D` as it is, bitsandbytes replaces it. The head stays as it is. The last four are "
    "tracekit's own; they are predicted and measured when they are named.\n",
}
TAIL = """## Another GPU

`--gpu OTHER`: every kernel's time is multiplied by modelled there ÷ modelled here, and by 0.85 to 1.2. The host
remains the same; its range is that of machines with such GPUs.
"""


def page(optimizations) -> str:
    """The whole page. Optimizations without a group come last."""
    by_id = {each.id: each for each in optimizations}
    groups = GROUPS | {_WASTE: tuple(each.id for each in optimizations if getattr(each, "needless", False))}
    grouped = {name for names in groups.values() for name in names}
    others = {"Others": tuple(name for name in by_id if name not in grouped)}
    parts = [HEAD]
    for title, names in {**groups, **others}.items():
        if names:
            parts += [
                f"## {title}\n",
                *([NOTES[title]] if title in NOTES else []),
                *(_section(by_id[n]) for n in names),
            ]
    return "\n".join([*parts, TAIL])


def _section(optimization) -> str:
    described = cleandoc(optimization.description)
    waste = getattr(optimization, "needless", False)
    together = waste or described.rpartition("\n\n")[2].startswith("*Refused*")
    parts = (f"### {optimization.id}", "" if waste else "\n", f"\n{described}\n", "" if together else "\n")
    return "".join((*parts, _facts(optimization)))


def _facts(optimization) -> str:
    costs = optimization.costs
    facts = {
        "Also called": ", ".join(f"`{alias}`" for alias in optimization.aliases),
        "Memory": costs.memory,
        "Accuracy": costs.accuracy,
        "Effort": costs.effort,
        "Needs": optimization.condition,
        "Not with": "; ".join(f"`{other}`: {why.rstrip('.')}" for other, why in optimization.excludes.items()),
    }
    return " ".join(f"*{name}*: {value.rstrip('.')}." for name, value in facts.items() if value) + "\n"
