"""Compares FLOPs and bytes computed from shapes with those that Nsight Compute measured on an H200."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from accuracy.chapter import Chapter, Target, at_most, table
from accuracy.counted_calls import calls, families, listing, targets
from tracekit.analyzers import analyze
from tracekit.analyzers.trace import load

_EXAMPLES = Path(__file__).parents[2] / "examples"
_RUNS = ("h200_gpt2_prefill", "h200_gpt2_decode")
_LIMIT = 0.05


def chapter(shared: Path) -> Chapter:  # noqa: ARG001
    """Return one line per family of kernels in a step, and one per op that was measured alone."""
    steps = pd.concat([_kernels(run).assign(run=run) for run in _RUNS])
    counted = calls()
    text, met = f"{_INTRODUCTION}\n\n### Steps of GPT-2\n\n{_steps(steps)}", (_target(steps),)
    if not counted.empty:
        alone = "\n\n".join((_ALONE, families(counted), _EACH, listing(counted)))
        text, met = f"{text}\n\n### Single ops\n\n{alone}", (*met, *targets(counted))
    return Chapter("Counted FLOPs and bytes", text, met)


def _kernels(run: str) -> pd.DataFrame:
    """Return the kernels of a step that the report covers: family, computed and measured FLOPs and bytes."""
    trace = load(_EXAMPLES / "traces" / f"{run}.json.gz")
    counters = load(_EXAMPLES / "counters" / f"{run}.ncu.csv.gz").counters
    counted, measured = analyze(trace).work, analyze(replace(trace, counters=counters)).work
    known = (measured["counters"] >= 0).to_numpy()
    columns = {"family": counted["family"].astype(str), "counted_flops": counted["flops"], "flops": measured["flops"]}
    columns |= {"counted_bytes": counted["bytes"], "bytes": measured["bytes"]}
    return pd.DataFrame(columns)[known]


def _steps(kernels: pd.DataFrame) -> str:
    lines = []
    for (run, family), rows in kernels.groupby(["run", "family"]):
        whole = rows[(rows["counted_bytes"] > 0) & rows["bytes"].notna()]
        if len(whole):
            flops, moved = _ratio(whole, "flops"), _ratio(whole, "bytes")
            lines.append((run.removeprefix("h200_"), family, len(whole), flops, moved))
    return table(("run", "family", "kernels", "FLOPs", "bytes"), lines, 3)


def _ratio(kernels: pd.DataFrame, what: str) -> str:
    counted = kernels[f"counted_{what}"].sum()
    return f"{kernels[what].sum() / counted:.2f}" if counted else ""


def _target(kernels: pd.DataFrame) -> Target:
    products = kernels[kernels["family"] == "gemm"]
    error = float(np.abs(products["flops"].sum() / products["counted_flops"].sum() - 1))
    return at_most("Counted FLOPs of GEMMs against Nsight Compute's", _LIMIT, error)


_INTRODUCTION = """Ratios are measured ÷ counted sums. Bytes are those of device memory. Nsight Compute flushes the
caches before a kernel, so every input is read from memory. Outputs often stay in the L2 (60 MB on an H200) until after
the kernel, so small outputs are not measured, and a ratio near one half is expected for a small kernel. Attention in
fp32 runs as three TF32 GEMMs, which the hardware counts as three times the FLOPs. The FLOPs of pointwise kernels and
norms are those of their instructions (an exponential or an index takes several); they have no effect, because these
kernels are memory-bound. See [counters](counters.md)."""
_ALONE = """One call of every family of ops, each kernel measured separately. Measured ÷ counted, the median of the
calls that read a megabyte or more. Half-precision instructions are not counted as FLOPs, because compilers also use
them to set registers. FLOPs of FP8 and INT8 GEMMs were not recorded."""
_EACH = """Each call, and the reason for its error. Counted bytes are those that an op must read and write; if a kernel
reads its input again, this is an inefficiency of the kernel and not an error of the formula. Written bytes are
unreliable: outputs stay in the L2, and a kernel that writes little evicts the outputs of earlier kernels."""
