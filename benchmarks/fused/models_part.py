"""Times whole models: as they are, with every fused kernel of their plan, compiled, and with liger-kernel's kernels."""

import copy
import gc
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from fused.device_time import step_ms
from fused.kernels_part import _tuples
from tracekit.capture import models, workloads
from tracekit.capture.annotate import NoRanges
from tracekit.capture.numerics import numerics
from tracekit.capture.settings import Settings
from tracekit.fusion.writing import Written, load, text

_COMPILE_S = 75
"""Seconds that are reserved for compiling and timing a model."""


def run(predictions: dict, out: Path, device: str, until: float) -> None:
    gpu = "h200" if device == "cuda" and "H200" in torch.cuda.get_device_name() else "h100-sxm"
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    result: dict[str, Any] = {"gpu": gpu, "device": name, "torch": torch.__version__, "runs": {}}
    order = ("llama-3.2-1b-prefill", "llama-3.2-1b-decode", "llama-3.2-1b-train")
    runs = [each for each in (*order, *predictions) if each in predictions and each != "alone"]
    runs = list(dict.fromkeys(runs))
    for variant in ("fused", "compiled"):
        for each in runs:
            left = until - time.monotonic()
            if left < (15 if variant == "fused" else _COMPILE_S / 3):
                result["runs"].setdefault(each, {})[f"{variant}_skipped"] = "no time was left"
                continue
            entry, began = predictions[each], time.monotonic()
            try:
                row = _beside(each, entry, gpu, out, device) if variant == "fused" else _compiled(entry, device)
            except Exception as error:
                row = {f"{variant}_error": repr(error)[:400]}
                traceback.print_exc(limit=-3)
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()
            result["runs"].setdefault(each, {}).update(row)
            print(
                f"{each:22s} {variant:9s} {time.monotonic() - began:5.0f} s  {_line(result['runs'][each])}", flush=True
            )
            (out / "models.json").write_text(json.dumps(result, indent=1) + "\n")


def _settings(entry: dict, device: str) -> Settings:
    asked = dict(entry["settings"])
    if device == "cpu":
        asked |= {"seq_len": 4, "batch_size": 1, "dtype": "fp32"}
    return Settings(**asked, device=device)


def _model(settings: Settings) -> Any:
    return models.build_for(settings)


def _beside(name: str, entry: dict, gpu: str, out: Path, device: str) -> dict:
    settings = _settings(entry, device)
    kernels = _kernels(name, entry["kernels"][gpu], out)
    with numerics(settings.dtype, ""):
        model = _model(settings)
        step = _step(model, settings)
        before = _result(step)
        eager = [_round(step, device)]
        times, kernel_ms, launches = {"eager": [], "fused": []}, {}, {}
        for kernel in kernels:
            kernel.apply(model)
        after = _result(step)
        for which in ("fused", "eager", "fused", "eager"):
            for kernel in kernels if which == "eager" else ():
                kernel.remove(model)
            for kernel in kernels if which == "fused" and times["eager"] else ():
                kernel.apply(model)
            times[which].append(_round(step, device))
            if which not in kernel_ms:
                kernel_ms[which], launches[which] = _kernel_ms(step, device)
        peaks = {}
        if device == "cuda" and settings.workload == "train":
            peaks["eager"] = _peak(step)
            for kernel in kernels:
                kernel.apply(model)
            peaks["fused"] = _peak(step)
    del eager
    row = {"eager_ms": min(times["eager"]), "fused_ms": min(times["fused"]), "rounds": times}
    row |= {
        "kernel_ms": kernel_ms,
        "kernel_launches": launches,
        "difference": _difference(after, before),
        "peaks": peaks,
    }
    return row | _liger(settings, device)


def _kernels(name: str, entries: list, out: Path) -> list[Any]:
    """Return the written kernels that can be put into the model, each file once."""
    files: dict[str, Any] = {}
    for entry in entries:
        if not entry["template"]:
            continue
        source = text(Written(entry["template"], _tuples(entry["constants"]), entry["launches"]))
        if source not in files:
            path = out / f"{name}-{len(files)}-{entry['template']}.py"
            path.write_text(source)
            files[source] = load(path, f"model_{name}_{len(files)}".replace("-", "_").replace(".", "_"))
    return [kernel for kernel in files.values() if hasattr(kernel, "apply")]


def _step(model: Any, settings: Settings) -> Any:
    torch.manual_seed(0)
    step = workloads.prepare(model, settings)
    return lambda: step(NoRanges())


def _result(step: Any) -> Any:
    result = step()
    return result.detach().float().clone()


def _round(step: Any, device: str) -> float:
    for _ in range(2):
        step()
    return step_ms(step, device, steps=12 if device == "cuda" else 1)


def _peak(step: Any) -> int:
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated()


def _kernel_ms(step: Any, device: str) -> tuple[float, float]:
    if device == "cpu":
        return 0.0, 0
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    events = [event for event in recorded.key_averages() if event.self_device_time_total]
    return sum(e.self_device_time_total for e in events) / 3e3, sum(e.count for e in events) / 3


def _compiled(entry: dict, device: str) -> dict:
    if device == "cpu":
        return {}
    settings = _settings(entry, device)
    torch.compiler.reset()
    with numerics(settings.dtype, ""):
        model = _model(settings)
        step = _step(torch.compile(model, dynamic=False), settings)
        began = time.monotonic()
        step()
        torch.cuda.synchronize()
        took = time.monotonic() - began
        best = min(_round(step, device) for _ in range(2))
        total, launches = _kernel_ms(step, device)
    return {"compiled_ms": best, "compile_s": took, "compiled_kernel_ms": total, "compiled_launches": launches}


def _liger(settings: Settings, device: str) -> dict:
    try:
        from liger_kernel.transformers import monkey_patch
    except ImportError:
        return {}
    kind = models.load_config(models.find(settings.model)).model_type
    if device == "cpu" or kind not in monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN:
        return {"liger": "does not know this model"}
    with numerics(settings.dtype, ""):
        model = _model(settings)
        module = sys.modules[type(model).__module__]
        before = copy.copy(vars(module))
        try:
            monkey_patch._apply_liger_kernel_to_instance(model)
            step = _step(model, settings)
            best = min(_round(step, device) for _ in range(2))
            total, launches = _kernel_ms(step, device)
        finally:
            vars(module).update(before)
    return {"liger_ms": best, "liger_kernel_ms": total, "liger_launches": launches}


def _difference(got: Any, wanted: Any) -> float:
    return float((got - wanted).norm() / wanted.norm())


def _line(row: dict) -> str:
    numbers = {key: value for key, value in row.items() if isinstance(value, float) and key != "compile_s"}
    return ", ".join(f"{key} {value:.3g}" for key, value in numbers.items()) or str(row)[:150]
