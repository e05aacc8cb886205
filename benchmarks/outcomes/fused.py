"""Chapter on fused kernels: each beside the ops, torch.compile's version and its prediction; then whole models."""

import json
from pathlib import Path

from outcomes.fused_again import section as again
from outcomes.fused_own import section as own
from outcomes.fused_saved import section as saved
from outcomes.quantized import section as quantized
from outcomes.qwen3_training import section as qwen3_training

_DATA = Path(__file__).parents[1] / "data"
_STEPS = _DATA / "fused_steps_h100"
_BLIND = Path(__file__).parents[1] / "predictions/fused_steps.json"
_HEAD = """## Fused kernels

Kernels that [`tracekit fuse`](fusion.md) writes, by `benchmarks/fused_kernels.py`: device time of one group by CUPTI,
with inputs that rotate through more memory than the L2. *Of a copy*: the bytes that must be moved, divided by the time,
as a fraction of a large copy's {rate:,.0f} GB/s; above 100 %, data came from the L2. Training includes forward and
backward. Batch 8 × 1,024 tokens (prefill), 1 after 512 (decode), 4 × 1,024 (train), bf16. All proofs passed on the
GPU."""
_KERNELS = """### Steps of whole models on an H100

The sum of all kernels of a step (bf16, sizes as above): eager, with the kernels that `apply` inserts, with
liger-kernel's and with `torch.compile`'s. A dash: not measured, or a model that liger-kernel does not support; *: from
a later session. The saving was predicted before the measurement (`benchmarks/predictions/fused_steps.json`)."""
_WALL = """Wall time of the same steps. Eager, fused and liger-kernel: each model in a separate process, three of them
on one host, after a profiler had run in the process. Both slow launches, so compare only these with each other. Times
of `torch.compile` marked * are from a later session, alone on the host."""
_WEIGHTS = """### GEMV in 4 and 8 bits

GEMV with weights of 4 and 8 bits (groups of 64) on an H100, by `benchmarks/narrow_product.py`: our kernel, variants of
it without one part, 16-bit weights, and PyTorch's int4 kernel; in brackets, the fraction of a copy's rate."""


def chapter() -> str:
    kernels = json.loads((_DATA / "h200_fused/kernels.json").read_text())
    rows = [row for row in kernels["rows"] if "after_us" in row]
    head = _HEAD.format(rate=kernels["copy_bytes_per_s"] / 1e9)
    steps = _steps()
    parts = [
        head,
        _table(_kernels(rows)),
        *_on_h100(),
        _KERNELS,
        _table(_kernel_times(steps)),
        _WALL,
        _table(_walls(steps)),
    ]
    return "\n\n".join(
        [*parts, *again(), *saved(), *own(), _WEIGHTS, _table(_weights()), *quantized(), *qwen3_training()]
    )


def _on_h100() -> list[str]:
    """Return the kernels alone."""
    kernels = json.loads((_DATA / "h100_fused/kernels.json").read_text())
    rows = [row for row in kernels["rows"] if "after_us" in row]
    said = f"The same kernels on an H100, whose copies run at {kernels['copy_bytes_per_s'] / 1e9:,.0f} GB/s:"
    return ["### On an H100", said, _table(_kernels(rows))]


def _steps() -> dict[str, dict]:
    """Return the measured steps. Compiled times of later sessions only fill gaps."""
    steps: dict[str, dict] = {}
    for path in sorted(_STEPS.glob("steps-*.json")):
        steps |= json.loads(path.read_text())
    later = [json.loads((_STEPS / f"{name}.json").read_text()) for name in ("compiled", "qwen3_train_compiled")]
    for name, row in (item for each in later for item in each.items()):
        if "compiled_ms" in row and "compiled_ms" not in steps[name]:
            steps[name] |= {
                "compiled_ms": row["compiled_ms"],
                "compiled_kernel_ms": row["compiled_kernel_ms"],
                "later": True,
            }
    return steps


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


def _kernel_times(steps: dict[str, dict]) -> list[str]:
    blind = json.loads(_BLIND.read_text())
    lines = [
        "| run | eager | fused | liger-kernel | torch.compile | saved: predicted | measured | error | launches |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in steps.items():
        saved = row["eager_kernel_ms"] - row["fused_kernel_ms"]
        predicted = blind[name]["kernel_ms"] - blind[name]["kernel_after_ms"]["expected"]
        others = [_ms(row, f"{which}_kernel_ms") for which in ("fused", "liger", "compiled")]
        others[-1] += " *" * bool(row.get("later"))
        lines.append(
            f"| {name} | {row['eager_kernel_ms']:.2f} ms | {' | '.join(others)} | {predicted:.2f} ms | {saved:.2f} | "
            f"{predicted / saved - 1:+.0%} | {row['eager_launches']:.0f} → {row['fused_launches']:.0f} |"
        )
    return lines


def _walls(steps: dict[str, dict]) -> list[str]:
    lines = ["| run | eager | fused | liger-kernel | torch.compile | peak memory |", "|---|---|---|---|---|---|"]
    for name, row in steps.items():
        others = [_ms(row, f"{which}_ms") for which in ("fused", "liger", "compiled")]
        others[-1] += " *" * bool(row.get("later"))
        peak = f"{row['eager_peak'] / 1e9:.1f} → {row['fused_peak'] / 1e9:.1f} GB" if "eager_peak" in row else "–"
        lines.append(f"| {name} | {row['eager_ms']:.1f} ms | {' | '.join(others)} | {peak} |")
    return lines


def _ms(row: dict, key: str) -> str:
    return f"{row[key]:.2f}" if key in row else "–"


_VARIANTS = ("ours", "reads alone", "without dequantization", "without the multiplication", "16 bits", "PyTorch's int4")


def _weights() -> list[str]:
    lines = [f"| outputs × inputs | bits | {' | '.join(_VARIANTS)} |", "|---" * (2 + len(_VARIANTS)) + "|"]
    for row in json.loads((_STEPS / "narrow_product.json").read_text())["rows"]:
        times = (
            f"{row['us'][name]:.1f} µs ({row['of_copy'][name]:.0%})" if name in row["us"] else "–" for name in _VARIANTS
        )
        lines.append(f"| {row['columns']:,} × {row['inputs']:,} | {row['bits']} | {' | '.join(times)} |")
    return lines
