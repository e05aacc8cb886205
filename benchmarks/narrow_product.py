"""Times GEMMs with weights of 4 and 8 bits for one row, and what bounds them.

    python benchmarks/narrow_product.py OUT [--seconds 75] [--device cpu]

Beside the kernel as it is stand the one before it, PyTorch's int4 product and a product with 16 bits. The same kernel
without one of its parts says which part takes the time: its reads alone, without the dequantization, without the
multiplication. A time is that of the kernel by CUPTI; weights rotate through more memory than the cache holds.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

SHAPES = (
    ("large", 14336, 4096, 4),
    ("large", 8192, 28672, 4),
    ("Llama-1B gate, up", 8192, 2048, 4),
    ("Llama-1B down", 2048, 8192, 4),
    ("large", 14336, 4096, 8),
    ("Llama-1B query", 2048, 2048, 4),
    ("Qwen3-0.6B gate, up", 3072, 1024, 4),
    ("Qwen3-0.6B down", 1024, 3072, 4),
    ("GPT-2 up", 3072, 768, 4),
    ("GPT-2 down", 768, 3072, 4),
    ("large", 8192, 28672, 8),
    ("Llama-1B gate, up", 8192, 2048, 8),
    ("GPT-2 query, key, value", 2304, 768, 4),
    ("Qwen3-0.6B query", 2048, 1024, 4),
)
"""Layer, outputs, inputs, bits; the most telling first."""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("out", type=Path)
    asked.add_argument("--seconds", type=float, default=75)
    asked.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = asked.parse_args()
    if options.device == "cpu":
        from tracekit.fuse.proof import interpret

        interpret()
    options.out.mkdir(parents=True, exist_ok=True)
    measured(options.out / "narrow_product.json", options.device, time.monotonic() + options.seconds)


def measured(path: Path, device: str, until: float) -> None:
    from fused.device_time import copy_rate
    from fused.narrow_product import Case, timed

    result: dict[str, Any] = {"device": _name(device), "copy_bytes_per_s": copy_rate(device), "rows": []}
    print(f"{result['device']}, a copy: {result['copy_bytes_per_s'] / 1e12:.2f} TB/s")
    for layer, columns, inputs, bits in SHAPES:
        if time.monotonic() > until:
            result["rows"].append({"layer": layer, "columns": columns, "inputs": inputs, "bits": bits, "skipped": True})
            continue
        sizes = (columns, inputs) if device == "cuda" else (16, min(inputs, 1024))
        row = {"layer": layer} | timed(Case(*sizes, bits), device, result["copy_bytes_per_s"], until)
        result["rows"].append(row)
        print(
            f"{until - time.monotonic():3.0f} s left  {layer:24s} {columns:6d} x {inputs:6d} int{bits}: {_line(row)}",
            flush=True,
        )
        path.write_text(json.dumps(result, indent=1) + "\n")


def _name(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else "CPU"


def _line(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {us:.1f} us ({row['of_copy'][name]:.0%})" for name, us in row["us"].items())


if __name__ == "__main__":
    main()
