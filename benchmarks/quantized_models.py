"""Whole models with `tracekit.quantize`'s weights beside fp16: time of a step, memory and error.

    python benchmarks/quantized_models.py OUT [--models llama-3.2-1b,llama-3.1-8b] [--seconds 45] [--device cpu]
    python benchmarks/quantized_models.py OUT --models llama-3.1-8b --seconds 40    # on a GPU: 50 s

One token after 512, and 1 x 512 tokens. All formats of a model are timed in turn, before a profiler sums their kernels;
then each of a small model is saved, and loaded into a new one. The error is that of the logits of 512 tokens, relative
to fp16's, with random weights. bitsandbytes must be installed for nf4.
"""

import argparse
import gc
import json
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from fused.device_time import step_ms
from fused.steps_part import kernels_of_step

from tracekit.capture import NoRanges, models, workloads
from tracekit.quantization import quantize
from tracekit.quantization.quantizing import Format, load, save
from tracekit.run import Settings

_FORMATS: tuple[Format, ...] = ("int4", "int8", "nf4")
_WORKLOADS = ("decode", "prefill")
_ROUNDS = 3
_LARGEST_SAVED = 5e9


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("out", type=Path)
    asked.add_argument("--models", default="llama-3.2-1b,llama-3.1-8b")
    asked.add_argument("--seconds", type=float, default=45, help="no model and no part is begun after them")
    asked.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = asked.parse_args()
    until = time.monotonic() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Any]] = {}
    for name in options.models.split(","):
        if time.monotonic() < until:
            formats = Formats(name, options.device)
            rows[name] = formats.rows
            for part in formats.measured(until):
                (options.out / "quantized.json").write_text(json.dumps(rows, indent=1) + "\n")
                print(f"{until - time.monotonic():4.0f} s left  {name} {part}", flush=True)
    show(rows)


class Formats:
    """One model in each format, side by side in memory."""

    def __init__(self, name: str, device: str) -> None:
        self._name, self._device = name, device
        self._models: dict[str, Any] = {}
        self.rows: dict[str, dict[str, Any]] = {}

    def measured(self, until: float) -> Iterator[str]:
        """Measure part by part until then, and yield the name of each after it."""
        self._add("fp16", lambda model: model)
        yield "fp16"
        for to in _FORMATS:
            self._add(to, lambda model, to=to: quantize(model, to))
            yield to
        for measure in (self._times, self._errors, self._kernels, self._peaks, self._saved):
            if time.monotonic() > until:
                return
            with torch.inference_mode():
                measure()
            yield measure.__name__.strip("_")

    def _add(self, label: str, change: Callable[[Any], Any]) -> None:
        try:
            self._models[label] = model = change(self._built())
        except Exception as error:  # a package is missing: the other formats are measured
            traceback.print_exc(limit=-2, file=sys.stdout)
            self.rows[label] = {"error": repr(error)[:300]}
            return
        self.rows[label] = {"weight_bytes": sum(_bytes_of(model))}

    def _built(self) -> Any:
        return models.build_for(self._settings("prefill"))

    def _settings(self, workload: Any) -> Settings:
        small: dict[str, Any] = {"seq_len": 4, "dtype": "fp32"} if self._device == "cpu" else {}
        usual = {"seq_len": 512, "dtype": "fp16", "model": self._name, "workload": workload, "steps": 1}
        return Settings(**usual | small, device=self._device)  # type: ignore[arg-type]

    def _step(self, label: str, workload: str) -> Callable[[], Any]:
        prepared = workloads.prepare(self._models[label], self._settings(workload))
        return lambda: prepared(NoRanges())

    def _errors(self) -> None:
        truth = self._logits(self._models["fp16"])
        for label, model in self._models.items():
            logits = self._logits(model)
            self.rows[label]["error_of_logits"] = float((logits - truth).norm() / truth.norm())
            self.rows[label]["same_token"] = float((logits.argmax(-1) == truth.argmax(-1)).float().mean())

    def _logits(self, model: Any) -> torch.Tensor:
        torch.manual_seed(1)
        tokens = torch.randint(10_000, (1, self._settings("prefill").seq_len), device=self._device)
        logits: torch.Tensor = model(tokens, use_cache=False).logits
        return logits.float()

    def _times(self) -> None:
        for workload in _WORKLOADS:
            steps = {label: self._step(label, workload) for label in self._models}
            for step in steps.values():
                step_ms(step, self._device, steps=2)
            for _ in range(_ROUNDS):
                for label, step in steps.items():
                    rounds = self.rows[label].setdefault(f"{workload}_ms", [])
                    rounds.append(step_ms(step, self._device, steps=10 if self._device == "cuda" else 1))

    def _peaks(self) -> None:
        """Measure what a step takes at most beyond what is there before it; weights are counted apart."""
        if self._device == "cpu":
            return
        for label in self._models:
            for workload in _WORKLOADS:
                step = self._step(label, workload)
                before = torch.cuda.memory_allocated()
                torch.cuda.reset_peak_memory_stats()
                step()
                self.rows[label][f"{workload}_extra_bytes"] = torch.cuda.max_memory_allocated() - before

    def _kernels(self) -> None:
        if self._device == "cpu":
            return
        for label in self._models:
            for workload in _WORKLOADS:
                summed = kernels_of_step(self._step(label, workload))
                self.rows[label] |= {f"{workload}_{key}": value for key, value in summed.items()}

    def _saved(self) -> None:
        """Save each format of a small model, load it into a new model, and compare the logits."""
        if self.rows["fp16"]["weight_bytes"] > _LARGEST_SAVED:
            return
        for label in [each for each in self._models if each != "fp16"]:
            model = self._models.pop(label)
            expected, path = self._logits(model), Path(f"/tmp/{Path(self._name).name}-{label}.safetensors")
            save(model, path)
            del model
            gc.collect()
            again = load(self._built(), path)
            self.rows[label]["file_bytes"] = path.stat().st_size
            self.rows[label]["loaded_alike"] = torch.equal(self._logits(again), expected)
            path.unlink()


def _bytes_of(model: Any) -> list[int]:
    """Return the bytes of the model's tensors, each once, with the scales that bitsandbytes keeps beside weights."""
    sizes = {tensor.data_ptr(): tensor.nbytes for tensor in model.state_dict().values()}
    return list(sizes.values())


def show(rows: dict[str, dict[str, Any]]) -> None:
    for name, formats in rows.items():
        for label, row in formats.items():
            if "error" in row:
                print(name, label, row["error"])
                continue
            times = (f"{each} {min(row[f'{each}_ms']):.2f} ms" for each in _WORKLOADS if f"{each}_ms" in row)
            kernels = (f"{row.get(f'{each}_kernel_ms', 0):.2f} ms" for each in _WORKLOADS)
            print(
                name, label, *times, "kernels", *kernels, f"weights {row['weight_bytes'] / 1e9:.2f} GB",
                f"error {row.get('error_of_logits', math.nan):.2%}, same token {row.get('same_token', math.nan):.1%}",
                f"loaded alike: {row.get('loaded_alike', '-')}",
            )  # fmt: skip


if __name__ == "__main__":
    main()
