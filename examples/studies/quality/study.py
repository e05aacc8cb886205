"""Measure what formats of weights cost a small trained model, beside their speed and memory.

    python examples/studies/quality/study.py MODELS OUT                        # on a GPU: four minutes
    python examples/studies/quality/study.py MODELS OUT --device cpu --tiny    # tries it anywhere

MODELS is what train.py wrote. OUT receives finetuning.json, speculative.json, bench.csv, panels.svg,
adapters.safetensors. What does not fit into --seconds is left out, and said. Needs torchao and bitsandbytes for the
formats of their libraries.
"""

import argparse
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from finetune import finetuned
from speculate import speculated

from tracekit.measure import BenchGrid, bench, evaluation_of, from_csv
from tracekit.reports.measure import bench_text, figure
from tracekit.run import Settings

CONFIGURATIONS = "fp32,bf16,fp16,int4,awq,nf4,llm-int8,int8,int8-dynamic,smoothquant,fp8,bf16+graphs,bf16+compile"
_ON_CPU = "fp32,bf16,smoothquant"


class OutOfTimeError(Exception):
    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=235.0)
    args = parser.parse_args()
    ends, models = time.monotonic() + args.seconds, args.models
    args.output.mkdir(parents=True, exist_ok=True)
    trained = models / "small-llama"
    adapters = args.output / "adapters.safetensors"
    _keep(args.output / "finetuning.json", lambda: finetuned(trained, args.device, args.tiny, adapters))
    _keep(args.output / "speculative.json", lambda: speculated(models, args.device, args.tiny))
    if args.device == "cuda":
        torch.cuda.empty_cache()
    _bench(models, args.output, args.device, ends)


def _keep(path: Path, work: Callable[[], Any]) -> None:
    started = time.monotonic()
    try:
        value = work()
    except Exception as error:  # the rest of the study goes on
        value = {"error": f"{type(error).__name__}: {error}"[:500]}
    path.write_text(json.dumps(value, indent=1))
    print(f"{path.stem}: {time.monotonic() - started:.0f} s", json.dumps(value), flush=True)


def _bench(models: Path, output: Path, device: str, ends: float) -> None:
    """Measure the configurations, in the order of their names, until the time is over."""

    def say(line: str) -> None:
        print(f"{ends - time.monotonic():4.0f} s left: {line}", flush=True)
        if line.startswith("measuring") and time.monotonic() > ends - 12:
            raise OutOfTimeError

    names = (_ON_CPU if device == "cpu" else CONFIGURATIONS).split(",")
    settings = Settings(model="", workload="decode", device=device, weights="pretrained")
    texts = evaluation_of(str(models / "held_out.txt")), models / "calibration.txt"
    grid = BenchGrid([str(models / "small-llama")], names, [1], [256], settings, *texts, wall_s=4.0)
    try:
        bench(grid, output / "bench", say)
    except OutOfTimeError:
        print("The time is over; configurations that are not in the table were not measured.")
    rows = [vars(row) for row in from_csv(output / "bench" / "bench.csv")]
    shutil.copy(output / "bench" / "bench.csv", output)
    (output / "panels.svg").write_text(figure(rows))
    print(bench_text(rows, width=150))


if __name__ == "__main__":
    main()
