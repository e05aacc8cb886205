"""Writes predictions/fused_kernels.json: what fused kernels of nine runs are predicted to take, before any is timed.

    python benchmarks/fused_predictions.py [NAME ...]

benchmarks/fused_kernels.py reads it on a GPU. Runs are recorded on fake tensors, so any machine can predict.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from tracekit.analyzers.cost import Cost, estimate_ns, hardware
from tracekit.analyzers.fuse import Planned, of_template, plan
from tracekit.analyzers.fuse.replacement import ERROR
from tracekit.capture import complete as planned_run
from tracekit.capture import graph_of, steps
from tracekit.run import Settings

TARGET = Path(__file__).parent / "predictions/fused_kernels.json"
GPUS = ("h100-sxm", "h200")
MODELS = ("gpt2", "llama-3.2-1b", "qwen3-0.6b")
WORKLOADS = {"prefill": (8, 1024), "decode": (1, 512), "train": (4, 1024)}
"""Batch size and tokens of each workload."""


ALONE = [
    *(("weight_only_product", {"columns": n, "inputs": k, "bits": bits, "group": 64}, n * k * bits // 8 * 17 // 16)
      for n, k in ((2048, 2048), (8192, 2048), (2048, 8192), (14336, 4096), (8192, 28672)) for bits in (4, 8)),
    ("norm_quantize", {"rows": 16384, "columns": 4096}, 16384 * 4096 * 3),
    ("masked_softmax", {"rows": 1024, "heads": 64, "keys": 1024}, 64 * 1024 * 1024 * 4 + 1024 * 1024 * 2),
    ("draft_check", {"rows": 5, "vocabulary": 128256}, 6 * 128256 * 2),
    ("embedding_position", {"rows": 16384, "columns": 4096, "vocabulary": 50257}, 16384 * 4096 * 6),
    ("add_norm", {"rows": 32768, "columns": 4096}, 32768 * 4096 * 8),
    ("norm", {"rows": 16384, "heads": 32, "size": 128}, 16384 * 4096 * 4),
    ("rotary", {"rows": 16384, "heads": (32, 8), "size": 128}, 16384 * 5120 * 4 + 16384 * 512),
    ("gated_activation", {"rows": 16384, "columns": 14336}, 16384 * 14336 * 6),
    ("dropout_residual", {"rows": 16384, "columns": 4096}, 16384 * 4096 * 6),
    ("pointwise_chain", {"rows": 16384, "columns": 14336}, 16384 * 14336 * 4),
]  # fmt: skip
"""Kernels at sizes beyond the cache, where the roof is the memory's: template, sizes, bytes that must move."""


def main(names: list[str]) -> None:
    known = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    known["alone"] = alone()
    for model in MODELS:
        for workload, (batch, tokens) in WORKLOADS.items():
            name = f"{model}-{workload}"
            if not names or name in names:
                known[name] = run(model, workload, batch, tokens)
                print(name, len(known[name]["kernels"]["h100-sxm"]), flush=True)
                TARGET.write_text(json.dumps(known, indent=1) + "\n")


def alone() -> list[dict]:
    """Return single kernels that no run has, or not at a size that memory bounds."""
    rows = []
    for template, sizes, moved in ALONE:
        entry = {"template": template, "sizes": sizes, "bytes_after": moved, "launches": {}, "after_ns": {}}
        for name in GPUS:
            gpu = hardware.find(name)
            tiles = of_template(template, sizes.get("columns", 1024), 2, gpu)
            after = estimate_ns(Cost(0, moved * 2 // 3, moved // 3, "pointwise", "bf16"), gpu)
            entry["launches"][name] = list(tiles.launches) if tiles else []
            entry["after_ns"][name] = [round(after * each) for each in (ERROR.high, ERROR.expected, ERROR.low)]
        rows.append(entry)
    return rows


def run(model: str, workload: str, batch: int, tokens: int) -> dict:
    asked = Settings(
        model=model, workload=workload, batch_size=batch, seq_len=tokens, dtype="bf16", device="model", gpu="h100-sxm"
    )
    settings = planned_run(asked)
    graph = graph_of(steps.run(settings, hardware.find("h100-sxm")).recording)
    settings_of_run = {"model": model, "workload": workload, "batch_size": batch, "seq_len": tokens, "dtype": "bf16"}
    kernels = {gpu: [row(each) for each in plan(graph, hardware.find(gpu))] for gpu in GPUS}
    return {"settings": settings_of_run, "kernels": kernels}


def row(planned: Planned) -> dict:
    return {
        "pattern": planned.pattern,
        "template": planned.template,
        "layer": planned.layer,
        "ops": planned.ops,
        "constants": dict(planned.constants),
        "sizes": dict(planned.sizes),
        "launches": list(planned.tiles.launches) if planned.tiles else [],
        "groups": planned.groups,
        "bytes_before": planned.each.bytes_before,
        "bytes_after": planned.each.bytes_after,
        "launches_before": planned.each.launches_before,
        "before_ns": round(planned.before_ns / planned.groups),
        "after_ns": [round(each / planned.groups) for each in asdict(planned.after_ns).values()],
    }


if __name__ == "__main__":
    main(sys.argv[1:])
