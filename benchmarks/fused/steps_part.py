"""Times the step of one run in a separate process: eager, with fused kernels, with liger-kernel's, and compiled.

Building and compiling run beside the other processes; the others stand still while one times. No profiler has run in
a process that times: after one, each launch takes longer.
"""

import gc
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from fused.device_time import step_ms
from fused.kernels_part import _tuples
from fused.liger import knows, liger_model
from fused.quiet import Quiet
from fused.steps_predicted import graph_path, settings_of
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.fuse import plan
from tracekit.analyzers.fuse.graph import read
from tracekit.capture import NoRanges, device_run, models, numerics, workloads
from tracekit.fuse.writing import Written, load, text
from tracekit.run import Settings

_ROUNDS = 3
_STEPS = 10
Kernels = list[tuple[str, Any]]
"""Template and module of each written kernel."""


class RunTimes:
    """The measurements of one run, which are written after each of them."""

    def __init__(
        self, name: str, out: Path, gpu: str, device: str, until: float, parts: list[str], layers: int
    ) -> None:
        self._layers = layers
        self._name, self._out, self._gpu, self._device, self._until = name, out, gpu, device, until
        self._parts, self._quiet, self.row = parts, Quiet(out), dict[str, Any]()
        self._settings = self._planned()

    def run(self) -> None:
        known: dict[str, Callable[[], None]] = {
            "fused": self._beside,
            "liger": self._liger,
            "compile": self._compiled,
            "trace": self._traced,
            "sums": self._summed,
        }
        for part in self._parts:
            try:
                with numerics(self._settings.dtype, ""):
                    known[part]()
            except Exception as error:
                self.row[f"{part}_error"] = repr(error)[:400]
                traceback.print_exc(limit=-3)
            (self._out / f"step-{self._name}.json").write_text(json.dumps(self.row, indent=1) + "\n")
            print(f"{self._until - time.time():4.0f} s left  {self._name} {part}", flush=True)
            gc.collect()
            if self._device == "cuda":
                torch.cuda.empty_cache()
        self._quiet.leave()

    def _planned(self) -> Settings:
        asked = settings_of(*self._name.rsplit("-", 1))
        if self._device == "cpu":
            asked |= {"seq_len": 4, "batch_size": 1, "dtype": "fp32"}
        if self._layers:
            asked["model"] = _with_layers(asked["model"], self._layers, self._out)
        return Settings(**asked, device=self._device, gpu=self._gpu, steps=2)

    def _built(self) -> tuple[Any, Callable[[], Any]]:
        model = models.build_for(self._settings)
        return model, self._stepping(model)

    def _stepping(self, model: Any) -> Callable[[], Any]:
        prepared = workloads.prepare(model, self._settings)
        return lambda: prepared(NoRanges())

    def _beside(self) -> None:
        """Time the step eager, with all kernels and, of a run that is traced, with those of each template."""
        model, step = self._built()
        kernels = _kernels(self._name, self._gpu, self._out)
        variants: dict[str, Kernels] = {"eager": [], "fused": kernels}
        if "trace" in self._parts:
            variants |= {each: [k for k in kernels if k[0] == each] for each in dict.fromkeys(k[0] for k in kernels)}
        before = step().detach().float().clone()
        self._warm(model, step, variants)
        _applied(kernels, model)
        after = step().detach().float().clone()
        _removed(kernels, model)
        times: dict[str, list[float]] = {each: [] for each in variants}
        with self._quiet():
            for _ in range(_ROUNDS):
                for name, used in variants.items():
                    _applied(used, model)
                    times[name].append(_round(step, self._device))
                    _removed(used, model)
            if self._device == "cuda" and self._settings.workload == "train":
                self.row["eager_peak"] = _peak(step)
                _applied(kernels, model)
                self.row["fused_peak"] = _peak(step)
        self.row |= {"eager_ms": min(times["eager"]), "fused_ms": min(times["fused"]), "rounds": times}
        self.row |= {"difference": float((after - before).norm() / before.norm())}

    def _warm(self, model: Any, step: Callable[[], Any], variants: dict[str, Kernels]) -> None:
        """Let Triton compile every variant's kernels."""
        for used in variants.values():
            _applied(used, model)
            step()
            _removed(used, model)

    def _liger(self) -> None:
        if self._device == "cpu" or not knows(self._settings):
            self.row["liger"] = "does not know this model"
            return
        with liger_model(self._settings) as model:
            step = self._stepping(model)
            step()
            with self._quiet():
                self.row["liger_ms"] = min(_round(step, self._device) for _ in range(2))

    def _compiled(self) -> None:
        if self._device == "cpu":
            return
        step = self._stepping(torch.compile(models.build_for(self._settings), dynamic=False))
        began = time.monotonic()
        for _ in range(2):
            step()
        torch.cuda.synchronize()
        self.row["compile_s"] = time.monotonic() - began
        with self._quiet():
            self.row["compiled_ms"] = min(_round(step, self._device) for _ in range(2))
            self.row |= {f"compiled_{key}": value for key, value in kernels_of_step(step).items()}

    def _summed(self) -> None:
        """Sum the kernels of the eager step, and of that with all kernels."""
        if self._device == "cpu":
            return
        model, step = self._built()
        kernels = _kernels(self._name, self._gpu, self._out)
        for which, used in (("eager", []), ("fused", kernels)):
            _applied(used, model)
            step()
            with self._quiet():
                self.row |= {f"{which}_{key}": value for key, value in kernels_of_step(step).items()}

    def _traced(self) -> None:
        """Record a trace of the eager step and one with all kernels."""
        model, _ = self._built()
        prepared = workloads.prepare(model, self._settings)
        kernels = _kernels(self._name, self._gpu, self._out)
        for which, used in (("eager", []), ("fused", kernels)):
            _applied(used, model)
            with self._quiet():
                path = self._out / f"{self._name}-{which}.trace.json.gz"
                device_run.write_run(model, prepared, self._settings, path, lambda _: None)


def _with_layers(name: str, layers: int, out: Path) -> str:
    """Write the configuration of a model with so many layers, and return its folder."""
    config = models.load_config(models.find(name))
    config.num_hidden_layers, config.layer_types = layers, (getattr(config, "layer_types", None) or [])[:layers]
    folder = out / f"{name}-{layers}"
    config.save_pretrained(folder)
    return str(folder)


def _kernels(name: str, gpu: str, out: Path) -> Kernels:
    """Return the written kernels that can be put into the model, each file once."""
    files: dict[str, tuple[str, Any]] = {}
    for row in plan(read(graph_path(name)), hardware.find(gpu)):
        if not row.template:
            continue
        launches = list(row.tiles.launches) if row.tiles else []
        source = text(Written(row.template, _tuples(dict(row.constants)), launches))
        if source not in files:
            path = out / f"{name}-{len(files)}-{row.template}.py"
            path.write_text(source)
            module = load(path, f"step_{name}_{len(files)}".replace("-", "_").replace(".", "_"))
            files[source] = row.template, module
    return [each for each in files.values() if hasattr(each[1], "apply")]


def _applied(kernels: Kernels, model: Any) -> None:
    for _, kernel in kernels:
        kernel.apply(model)


def _removed(kernels: Kernels, model: Any) -> None:
    for _, kernel in reversed(kernels):
        kernel.remove(model)


def _round(step: Callable[[], Any], device: str) -> float:
    for _ in range(2):
        step()
    return step_ms(step, device, steps=_STEPS if device == "cuda" else 1)


def _peak(step: Callable[[], Any]) -> int:
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated()


def kernels_of_step(step: Callable[[], Any]) -> dict[str, Any]:
    """Return the kernel time of a step and its launches."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    events = [event for event in recorded.key_averages() if event.self_device_time_total]
    total = sum(event.self_device_time_total for event in events)
    return {"kernel_ms": total / 3e3, "launches": sum(event.count for event in events) / 3}


def main(name: str, out: str, gpu: str, device: str, until: str, parts: str, layers: str) -> None:
    if device == "cpu":
        from tracekit.fuse.proof import interpret

        interpret()
    RunTimes(name, Path(out), gpu, device, float(until), parts.split(","), int(layers)).run()
