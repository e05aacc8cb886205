"""Times the steps of one model in a process of its own: eager, with fused kernels, with liger-kernel's, and compiled.

What takes the CPU (building, analyzing, compiling) runs beside the other processes; what is timed holds a lock.
"""

import fcntl
import gc
import json
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from fused.kernels_part import _tuples
from fused.models_part import _liger, _peak, _round
from fused.steps_predicted import WORKLOADS, from_trace, graph_path, settings_of
from tracekit.analyzers import hardware
from tracekit.analyzers.fusion.graph import read
from tracekit.analyzers.fusion.planned_kernels import plan
from tracekit.capture import models, record, workloads
from tracekit.capture.annotate import NoRanges
from tracekit.capture.numerics import numerics
from tracekit.capture.settings import Settings
from tracekit.fusion.writing import Written, load, text

_COMPILE_S = 25
"""Seconds below which no further run is compiled."""


class ModelTimes:
    """The measurements of one model, which are written after each of them."""

    def __init__(self, model: str, out: Path, gpu: str, device: str, until: float) -> None:
        self._model, self._out, self._gpu, self._device, self._until = model, out, gpu, device, until
        self.rows: dict[str, dict[str, Any]] = {}

    def run(self) -> None:
        parts = (("fused", self._beside), ("compiled", self._compiled))
        for variant, measured in parts:
            for workload in WORKLOADS:
                row = self.rows.setdefault(f"{self._model}-{workload}", {})
                if time.time() > self._until - (_COMPILE_S if variant == "compiled" else 5):
                    row[f"{variant}_skipped"] = "no time was left"
                    continue
                try:
                    measured(workload, row)
                except Exception as error:
                    row[f"{variant}_error"] = repr(error)[:400]
                    traceback.print_exc(limit=-3)
                self._note(f"{self._model}-{workload} {variant}")
                gc.collect()
                if self._device == "cuda":
                    torch.cuda.empty_cache()

    def _note(self, what: str) -> None:
        (self._out / f"steps-{self._model}.json").write_text(json.dumps(self.rows, indent=1) + "\n")
        print(f"{self._until - time.time():4.0f} s left  {what}", flush=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the device: one process times at a time."""
        with (self._out / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _settings(self, workload: str) -> Settings:
        asked = settings_of(self._model, workload)
        if self._device == "cpu":
            asked |= {"seq_len": 4, "batch_size": 1, "dtype": "fp32"}
        return Settings(**asked, device=self._device, gpu=self._gpu, steps=2)

    def _beside(self, workload: str, row: dict[str, Any]) -> None:
        settings, name = self._settings(workload), f"{self._model}-{workload}"
        with numerics(settings.dtype, ""):
            model = models.build_for(settings)
            prepared = workloads.prepare(model, settings)
            with self._alone():
                record.write_run(model, prepared, settings, self._out / f"{name}.trace.json.gz", lambda _: None)
            self._predict(name, row)  # before any kernel of ours runs
            self._times(model, prepared, name, row)
        del model, prepared
        gc.collect()
        with self._alone():
            row |= _liger(settings, self._device)

    def _predict(self, name: str, row: dict[str, Any]) -> None:
        if self._device == "cuda":
            try:
                row["from_trace"] = from_trace(self._out / f"{name}.trace.json.gz", name, self._gpu)
            except Exception:  # what is measured is worth having all the same
                traceback.print_exc()
            self._note(f"{name} predicted")

    def _times(self, model: Any, prepared: Any, name: str, row: dict[str, Any]) -> None:
        def step() -> Any:
            return prepared(NoRanges())

        kernels, times = _kernels(name, self._gpu, self._out), {"eager": [], "fused": []}
        with self._alone():
            before = step().detach().float().clone()
            after = _changed(kernels, model, step).detach().float().clone()
            for which in ("fused", "eager") * 2:
                if which == "fused" and times["eager"]:
                    _applied(kernels, model)
                if which == "eager":
                    _removed(kernels, model)
                times[which].append(_round(step, self._device))
                if len(times[which]) == 1:
                    row |= {f"{which}_{key}": value for key, value in _profiled(step, self._device).items()}
            if self._device == "cuda" and name.endswith("train"):
                row["eager_peak"] = _peak(step)
                _applied(kernels, model)
                row["fused_peak"] = _peak(step)
        row |= {"eager_ms": min(times["eager"]), "fused_ms": min(times["fused"]), "rounds": times}
        row |= {"difference": float((after - before).norm() / before.norm()), "results": _ends(before, after)}

    def _compiled(self, workload: str, row: dict[str, Any]) -> None:
        if self._device == "cpu":
            return
        settings = self._settings(workload)
        torch.compiler.reset()
        with numerics(settings.dtype, ""):
            model = models.build_for(settings)
            prepared = workloads.prepare(torch.compile(model, dynamic=False), settings)

            def step() -> Any:
                return prepared(NoRanges())

            began = time.monotonic()
            step()
            torch.cuda.synchronize()
            row["compile_s"] = time.monotonic() - began
            with self._alone():
                row["compiled_ms"] = min(_round(lambda: prepared(NoRanges()), self._device) for _ in range(2))
                row |= {
                    f"compiled_{key}": value for key, value in _profiled(lambda: prepared(NoRanges()), "cuda").items()
                }


def _kernels(name: str, gpu: str, out: Path) -> list[Any]:
    """The written kernels that can be put into the model, each file once."""
    files: dict[str, Any] = {}
    for row in plan(read(graph_path(name)), hardware.find(gpu)):
        if not row.template:
            continue
        launches = list(row.tiles.launches) if row.tiles else []
        source = text(Written(row.template, _tuples(dict(row.constants)), launches))
        if source not in files:
            path = out / f"{name}-{len(files)}-{row.template}.py"
            path.write_text(source)
            files[source] = load(path, f"step_{name}_{len(files)}".replace("-", "_").replace(".", "_"))
    return [kernel for kernel in files.values() if hasattr(kernel, "apply")]


def _changed(kernels: list[Any], model: Any, step: Any) -> Any:
    _applied(kernels, model)
    return step()


def _applied(kernels: list[Any], model: Any) -> None:
    for kernel in kernels:
        kernel.apply(model)


def _removed(kernels: list[Any], model: Any) -> None:
    for kernel in kernels:
        kernel.remove(model)


def _ends(before: torch.Tensor, after: torch.Tensor) -> list[float]:
    return [float(each.reshape(-1)[-1]) for each in (before, after)]


def _profiled(step: Any, device: str) -> dict[str, Any]:
    """Return the kernel time of a step, its launches, and the time of the kernels that take most, by name."""
    if device == "cpu":
        return {}
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    events = [event for event in recorded.key_averages() if event.self_device_time_total]
    most = sorted(events, key=lambda event: -event.self_device_time_total)[:25]
    return {
        "kernel_ms": sum(event.self_device_time_total for event in events) / 3e3,
        "launches": sum(event.count for event in events) / 3,
        "kernels": [[e.key[:90], e.count / 3, e.self_device_time_total / 3e3] for e in most],
    }


def main(model: str, out: str, gpu: str, device: str, until: str) -> None:
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")
    if device == "cpu":
        from tracekit.fusion.proof import interpret

        interpret()
    ModelTimes(model, Path(out), gpu, device, float(until)).run()
