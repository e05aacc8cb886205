"""Qwen3's training beside torch.compile, in a separate session."""

import json
from pathlib import Path

_DATA = Path(__file__).parents[1] / "data/fused_steps_h100"
_HEAD = """### Qwen3's training under torch.compile

The whole model, 4 × 1,024 tokens, in a separate session on an H100 (best of three rounds; two of `torch.compile`, which
compiled for {compile_s:.0f} s). Predicted beforehand: kernel time with ours {kernels}, speed-up of the step {step}."""
_TOLD = """Our kernels take less time than the compiler's, but the compiled step is faster, because it launches from
C++, and the step with our kernels is host-bound. An earlier session on an H100 timed {layers} of the 28 layers: eager
{eager_ms:.1f} ms, fused {fused_ms:.1f} ms ({gain:.2f}×), liger-kernel {liger_ms:.1f} ms; peak memory {peak}."""


def section() -> list[str]:
    row = json.loads((_DATA / "qwen3_train_compiled.json").read_text())["qwen3-0.6b-train"]
    few = json.loads((_DATA / "fewer_layers.json").read_text())["qwen3-0.6b-train"]
    low, kernels, high = row["predicted"]["fused_kernel_ms"]
    slow, step, fast = row["predicted"]["speedup"]
    head = _HEAD.format(
        compile_s=row["compile_s"],
        kernels=f"{kernels:.1f} ms ({low:.1f} to {high:.1f})",
        step=f"{step:.2f}× ({slow:.2f} to {fast:.2f})",
    )
    told = _TOLD.format(**few, gain=few["eager_ms"] / few["fused_ms"], peak=_peak(few))
    return [head, "\n".join(_table(row)), told]


def _table(row: dict) -> list[str]:
    names = ("eager", "fused", "compiled")
    kernels = (f"{row[f'{each}_kernel_ms']:.1f} ms, {row[f'{each}_launches']:,.0f} launches" for each in names)
    steps = (f"{row[f'{each}_ms']:.1f} ms, {row['eager_ms'] / row[f'{each}_ms']:.2f}×" for each in names[1:])
    return [
        "| | eager | fused | torch.compile |",
        "|---" * 4 + "|",
        f"| kernels | {' | '.join(kernels)} |",
        f"| step, wall time | {row['eager_ms']:.1f} ms | {' | '.join(steps)} |",
        f"| peak memory | {_peak(row).replace(' → ', ' GB | ')} | – |",
    ]


def _peak(row: dict) -> str:
    return f"{row['eager_peak'] / 1e9:.1f} → {row['fused_peak'] / 1e9:.1f} GB"
