"""Whole models with `tracekit.quantize`'s weights beside fp16."""

import json
from pathlib import Path

_DATA = Path(__file__).parents[1] / "data/fused_steps_h100"
_HEAD = """### A whole model in 4 and 8 bits

Llama-3.2-1B with `tracekit.quantize`'s weights (groups of 64; the head and the embedding stay in fp16) on an H100, by
`benchmarks/quantized_models.py`: one token after 512, and 1 × 512 tokens; wall time, the best of three rounds, and the
sum of kernels. In every format, a step takes {decode:.0f} and {prefill:.0f} MB in addition to the weights. Each format
was saved as safetensors and loaded into a new model, whose logits are bitwise equal."""
_WHY = """Decode saves 7 to 25 % of its kernel time, which includes the head in fp16. Its wall time is longer, because
it is host-bound: each layer is a Python module with a Triton launch. (Each was also an autograd.Function, which
inference no longer uses; not measured since.) For 512 rows, weights are unpacked before the multiplication, which takes
1.8 to 3.1 ms. The weights are random, so rounding errors add up through 16 layers, and nearly equal logits change
places: the errors compare the formats, and do not measure quality. [The loss for trained weights](#weight-formats) is
above."""
_EIGHT = """The decode kernels of Llama-3.1-8B are {faster:.2f} times as fast in int4, but the step is still host-bound.
For 512 rows, unpacking takes {least:.0f} to {most:.0f} ms."""


def section() -> list[str]:
    small = json.loads((_DATA / "quantized.json").read_text())["llama-3.2-1b"]
    large = json.loads((_DATA / "quantized_llama_8b.json").read_text())["llama-3.1-8b"]
    extra = {name: small["int4"][f"{name}_extra_bytes"] / 1e6 for name in ("decode", "prefill")}
    parts = [_HEAD.format(**extra), "\n".join(_table(small)), _WHY]
    return [*parts, "Llama-3.1-8B, another session:", "\n".join(_table(large)), _told(large)]


def _told(rows: dict[str, dict]) -> str:
    plain = rows["fp16"]
    unpacked = [row["prefill_kernel_ms"] - plain["prefill_kernel_ms"] for row in rows.values() if row is not plain]
    faster = plain["decode_kernel_ms"] / rows["int4"]["decode_kernel_ms"]
    return _EIGHT.format(faster=faster, least=min(unpacked), most=max(unpacked))


def _table(rows: dict[str, dict]) -> list[str]:
    lines = [
        "| weights | decode | its kernels | prefill | its kernels | weights in memory | error of logits | same token |",
        "|---" * 8 + "|",
    ]
    for label, row in rows.items():
        if "error" in row:
            continue
        times = " | ".join(
            f"{min(row[f'{each}_ms']):.1f} ms | {row[f'{each}_kernel_ms']:.2f} ms" for each in ("decode", "prefill")
        )
        error = "–" if label == "fp16" else _percent(row["error_of_logits"])
        same = _percent(row["same_token"], 0.01)
        lines.append(f"| {label} | {times} | {row['weight_bytes'] / 1e9:.2f} GB | {error} | {same} |")
    return lines


def _percent(part: float, digit_below: float = 0.1) -> str:
    return f"{part:.1%}" if part < digit_below else f"{part:.0%}"
