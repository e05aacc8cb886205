"""Chapter on fused kernels: each beside the ops, torch.compile's version and its prediction; then whole models."""

import json
from collections import defaultdict
from pathlib import Path

_TINYGEMM = "PyTorch's int4"
_DATA = Path(__file__).parents[1] / "data"
_HEAD = """## Fused kernels

Kernels that [`tracekit fuse`](fusion.md) writes, by `benchmarks/fused_kernels.py`: device time of one group by CUPTI,
with inputs that rotate through more memory than the L2. *Of a copy*: bytes that must move over the time, as a fraction
of a large copy's {rate:,.0f} GB/s; more than 100 % came from the L2. Training counts forward and backward. Batch
8 × 1,024 tokens (prefill), 1 after 512 (decode), 4 × 1,024 (train), bf16. All proofs passed on the GPU."""
_SUMS = "Sum of all groups of a step, as predicted (`benchmarks/predictions/fused_kernels.json`) and then measured:"
_MODELS = "Models with all their kernels, wall time of a step and, in brackets, the sum of its kernels:"
_WEIGHTS = (
    """Weights of 4 and 8 bits (groups of 64), one row, the sizes of products beside what they take in 16 bits:"""
)


def chapter() -> str:
    kernels, models = (
        json.loads((_DATA / "h200_fused" / f"{name}.json").read_text()) for name in ("kernels", "models")
    )
    rows = [row for row in kernels["rows"] if "after_us" in row]
    head = _HEAD.format(rate=kernels["copy_bytes_per_s"] / 1e9)
    parts = [head, _table(_kernels(rows)), _SUMS, _table(_sums(rows)), _MODELS, _table(_models(models["runs"]))]
    return "\n\n".join([*parts, _WEIGHTS, _table(_weights(rows)), *_on_h100()])


def _on_h100() -> list[str]:
    """Return the kernels alone; models with them were not measured there."""
    kernels = json.loads((_DATA / "h100_fused" / "kernels.json").read_text())
    rows = [row for row in kernels["rows"] if "after_us" in row]
    said = f"The same kernels on an H100, whose copies run at {kernels['copy_bytes_per_s'] / 1e9:,.0f} GB/s:"
    return ["### On an H100", said, _table(_kernels(rows)), _table(_weights(rows))]


def _table(lines: list[str]) -> str:
    return "\n".join(lines)


def _kernels(rows: list[dict]) -> list[str]:
    head = "| run | kernel | ops | torch.compile | ours | predicted | of a copy |\n|---|---|---|---|---|---|---|"
    lines = [head]
    for row in rows:
        if row["template"] == "weight_only_product":
            continue
        compiled = f"{row['compiled_us']:,.1f}" if row["compiled_us"] else "–"
        share = f"{row['of_copy']:.0%}" if row["bytes"] > 2e7 and "product" not in row["template"] else "–"
        share = "–" if row["template"] == "packed_projections" else share
        sizes = ", ".join(f"{value}" for value in row["sizes"].values())
        lines.append(
            f"| {row['run']} | {row['template']} ({sizes}) | {row['before_us']:,.1f} µs | {compiled} | "
            f"{row['after_us']:,.1f} | {row['predicted_after_us'][1]:,.1f} | {share} |"
        )
    return lines


def _sums(rows: list[dict]) -> list[str]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    names = ("predicted_before_us", "before_us", "after_us")
    for row in rows:
        if row["run"] != "alone":
            values = [row[name] for name in names] + [row["predicted_after_us"][1]]
            sums[row["run"]] = [a + row["groups"] * b / 1e3 for a, b in zip(sums[row["run"]], values, strict=True)]
    lines = [
        "| run | ops, predicted | measured | kernels, predicted | measured | saved: error |\n|---|---|---|---|---|---|"
    ]
    for run, (expected, before, after, predicted) in sums.items():
        error = (expected - predicted) / (before - after) - 1
        lines.append(f"| {run} | {expected:.2f} ms | {before:.2f} | {predicted:.2f} | {after:.2f} | {error:+.0%} |")
    return lines


def _models(runs: dict[str, dict]) -> list[str]:
    lines = [
        "| run | eager | fused | torch.compile | liger-kernel | launches | peak memory |\n|---|---|---|---|---|---|---|"
    ]
    for name, run in runs.items():
        kernel_ms, launches, peaks = run["kernel_ms"], run["kernel_launches"], run["peaks"]
        compiled = _both(run, "compiled_ms", "compiled_kernel_ms")
        liger = _both(run, "liger_ms", "liger_kernel_ms")
        peak = f"{peaks['eager'] / 1e9:.1f} → {peaks['fused'] / 1e9:.1f} GB" if peaks else "–"
        count = f"{launches['eager']:.0f} → {launches['fused']:.0f}"
        lines.append(
            f"| {name} | {run['eager_ms']:.1f} ms ({kernel_ms['eager']:.1f}) | {run['fused_ms']:.1f} "
            f"({kernel_ms['fused']:.1f}) | {compiled} | {liger} | {count} | {peak} |"
        )
    return lines


def _both(run: dict, wall: str, kernels: str) -> str:
    return f"{run[wall]:.1f} ({run[kernels]:.1f})" if wall in run else "–"


def _weights(rows: list[dict]) -> list[str]:
    lines = ["| outputs × inputs | bits | 16 bits | ours | PyTorch's int4 | of a copy |\n|---|---|---|---|---|---|"]
    for row in rows:
        if row["template"] == "weight_only_product":
            sizes, library = row["sizes"], row["library_us"]
            theirs = f"{library[_TINYGEMM]:.1f}" if sizes["bits"] == 4 else "–"
            lines.append(
                f"| {sizes['columns']:,} × {sizes['inputs']:,} | {sizes['bits']} | {library['16 bits']:.1f} µs | "
                f"{row['after_us']:.1f} | {theirs} | {row['of_copy']:.0%} |"
            )
    return lines
