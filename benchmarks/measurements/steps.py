"""Steps of an H200 that were timed without a profiler: benchmarks/data/h200_{latencies.csv,host_steps.json}, what the
traces in examples/traces say of theirs, and the runs that optimizations were measured beside."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.predict import HostCosts
from tracekit.analyzers.trace import load, ranges
from tracekit.capture import Recording, complete, models
from tracekit.capture import steps as fake_steps
from tracekit.capture.fake.timeline import ModelledKernel, Work, host_work, kernel_of, lay_out
from tracekit.capture.latency import PHASE_NAMES
from tracekit.run import Settings

_BENCHMARKS = Path(__file__).parents[1]
LATENCIES = _BENCHMARKS / "data" / "h200_latencies.csv"
SPEEDUPS = LATENCIES.with_name("h200_speedups.csv")
NARROW = _BENCHMARKS / "data" / "h200_host_steps.json"
_TRACES = _BENCHMARKS.parent / "examples" / "traces"
_RUN = ["model", "workload", "batch_size", "seq_len", "dtype", "attention"]
_TOKENS = "bos_token_id", "eos_token_id", "pad_token_id"


@dataclass(frozen=True)
class TimedStep:
    settings: Settings
    median_us: float
    process: str
    """Other activity of the process or the machine: alone, beside compilation, narrow, or the name of a trace."""
    phases_us: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        of = self.settings
        batch = f", batch {of.batch_size}" if of.batch_size > 1 else ""
        length = f", {of.seq_len} tokens" if of.seq_len not in (0, 512) else ""
        return f"{of.name or of.model} {of.workload}, {of.dtype}, {of.attention}{batch}{length}"


def full() -> Iterator[TimedStep]:
    """Return unmodified models, each timed in a process without a profiler."""
    for row in pd.read_csv(LATENCIES).itertuples(index=False):
        settings = _modelled(row.model, row.workload, row.batch_size, row.seq_len, row.dtype, row.attention)
        yield TimedStep(settings, row.median_us, row.process)
    for path in sorted(_TRACES.glob("h200_*.json.gz")):
        capture = load(path).metadata.capture
        if capture and capture.latency and capture.workload != "generate":
            run = (capture.model, capture.workload, capture.batch_size, capture.seq_len, capture.dtype)
            name = path.name.removesuffix(".json.gz")
            yield TimedStep(_modelled(*run, capture.attention), capture.latency.median_us, name)


def unseen() -> Iterator[TimedStep]:
    """Return models that no constant was fitted to, timed beside their optimizations, from the second round on."""
    rows = pd.read_csv(SPEEDUPS)
    later = rows[(rows["round"] > 1) & (rows["workload"] != "generate")]
    for run, median_us in later.groupby(_RUN, sort=False)["before_us"].median().dropna().items():
        yield TimedStep(_modelled(*run), median_us, "beside optimizations")


def narrow(folder: Path) -> Iterator[TimedStep]:
    """Return models of full depth and little width, which are host-bound. Their configurations are written into
    `folder`."""
    file = json.loads(NARROW.read_text(encoding="utf-8"))
    for row in file["steps"]:
        config = _narrow_config(row["model"], row["workload"] == "train", file["widths"][row["model"]], folder)
        settings = _modelled(config, row["workload"], 1, file["seq_len"], row["dtype"], row["attention"])
        yield TimedStep(settings, row["median_us"], "narrow", row.get("phases_us", {}))


@cache
def _modelled(model: str, workload: str, batch_size: int, seq_len: int, dtype: str, attention: str) -> Settings:
    settings: dict[str, Any] = {"model": model, "workload": workload, "dtype": dtype, "attention": attention}
    return complete(Settings(**settings, batch_size=batch_size, seq_len=seq_len, device="model", gpu="h200"))


def _narrow_config(model: str, training: bool, widths: Mapping[str, int], folder: Path) -> str:
    spec = models.find(model)
    config = {**spec.hyper_parameters, **widths}
    if training and spec.training_class:
        config["architectures"] = [spec.training_class]
    for token in _TOKENS:
        value = config.get(token)
        if value is not None:
            config[token] = [min(each, 999) for each in value] if isinstance(value, list) else min(value, 999)
    path = folder / f"{model}-{'train' if training else 'infer'}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(path)


_NO_HOST = 0.01
_MOST = 5.0


@dataclass(frozen=True)
class ModelledStep:
    timed: TimedStep
    recording: Recording
    kernels: list[ModelledKernel | None]
    gpu: GPU

    @cached_property
    def work(self) -> Work:
        """Array of (slots, CLASSES)."""
        return host_work(self.recording, self.kernels)

    def latency_us(self, host: HostCosts) -> float:
        return lay_out(self.recording, self.kernels, self.gpu, host, steps=1).step_ns / 1e3

    def floor_us(self, host: HostCosts) -> float:
        """Return the latency with a host that takes almost no time."""
        return self.latency_us(host.scaled(_NO_HOST))

    def host_factor(self, host: HostCosts) -> float:
        """The factor on host times with which the step takes as long as it took, found by bisection."""
        low, high = _NO_HOST, _MOST
        for _ in range(20):
            middle = (low + high) / 2
            within = self.latency_us(host.scaled(middle)) < self.timed.median_us
            low, high = (middle, high) if within else (low, middle)
        return low

    def measured_parts(self) -> list[tuple[Work, float]]:
        """Yield each timed phase, or the step: its amount of each class of op, and its microseconds."""
        if not self.timed.phases_us:
            return [(self.work.sum(axis=0), self.timed.median_us)]
        names = {PHASE_NAMES[each.name]: each.closes for each in self.recording.ranges if _is_phase(each.name)}
        ends = [*list(names.values())[:-1], len(self.work)]
        works = np.split(self.work, ends[:-1])
        return [(work.sum(axis=0), self.timed.phases_us[name]) for name, work in zip(names, works, strict=True)]


def modelled(timed: TimedStep, gpu_id: str = "h200") -> ModelledStep:
    gpu = hardware.find(gpu_id)
    recording = fake_steps.run(timed.settings, gpu).recording
    kernels = [kernel_of(call, gpu, tf32=timed.settings.dtype == "tf32") for call in recording.calls]
    return ModelledStep(timed, recording, kernels, gpu)


def _is_phase(name: str) -> bool:
    return (ranges.parse(name) or ("",))[0] == "phase"
