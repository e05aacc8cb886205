"""What fused kernels are predicted to give in a step: from a trace, modelled or measured, and the graph of the step."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tracekit.advise import FusedKernels, predicted_speedup
from tracekit.advise.outcomes import OUTCOMES
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.fuse import placed
from tracekit.analyzers.fuse.graph import read
from tracekit.analyzers.predict import positions, rows_of, start
from tracekit.analyzers.trace import reading
from tracekit.capture import complete as planned_run
from tracekit.capture import model_trace
from tracekit.fuse import run_graph
from tracekit.run import Settings

HERE = Path(__file__).parents[1] / "predictions/fused_steps"
"""NAME.json.gz: the graph of each run, from which everything is predicted."""
MODELS = ("llama-3.2-1b", "gpt2", "qwen3-0.6b")
RUNS = {
    "decode": ("decode", 1, 512),
    "prefill": ("prefill", 8, 1024),
    "train": ("train", 4, 1024),
    "small": ("train", 1, 64),
}
"""End of a run's name -> workload, batch and tokens. A step of small waits for its host."""


def graph_path(name: str) -> Path:
    """Return the file of a run's graph. A small step has the ops of a large one."""
    return HERE / f"{name.replace('-small', '-train')}.json.gz"


def settings_of(model: str, kind: str) -> dict[str, Any]:
    workload, batch, tokens = RUNS[kind]
    return {"model": model, "workload": workload, "batch_size": batch, "seq_len": tokens, "dtype": "bf16"}


def modelled(model: str, kind: str, gpu: str, folder: Path) -> dict[str, Any]:
    """Model the run, keep its graph, and return what its kernels are predicted to give."""
    asked = Settings(**settings_of(model, kind), device="model", gpu=gpu, steps=1)
    settings, name, trace = planned_run(asked), f"{model}-{kind}", folder / "trace.json.gz"
    model_trace.write(
        settings, hardware.find(gpu), trace, lambda _: None, keep=lambda recording: run_graph.keep(recording, folder)
    )
    graph_path(name).write_bytes((folder / "graph.json.gz").read_bytes())
    return from_trace(trace, name, gpu)


def from_trace(trace: Path, name: str, gpu: str) -> dict[str, Any]:
    """Return the predicted time of a step and of its kernels, before and after, and of each template's groups."""
    graph = read(graph_path(name))
    _, base = start(reading.load(trace), hardware.find(gpu))
    assert base is not None
    base, every = replace(base, graph=lambda: graph), FusedKernels("all")
    gain = predicted_speedup(every, base)
    after = {outcome: every.transform(base, outcome) for outcome in OUTCOMES}
    return {
        "wall_ms": base.stated_ns / 1e6,
        "speedup": asdict(gain),
        "kernel_ms": float(base.ops.kernel_ns.sum()) / 1e6,
        "kernel_after_ms": {outcome: float(ops.kernel_ns.sum()) / 1e6 for outcome, ops in after.items()},
        "launches": int(base.ops.launches.sum()),
        "launches_after": int(after["expected"].launches.sum()),
        "templates": _templates(base, graph, gpu),
    }


def _templates(base: Any, graph: Any, gpu: str) -> dict[str, dict[str, float]]:
    """Return the time of the ops that each template's kernels replace, and of the kernels, in milliseconds."""
    rows, kernel, result = rows_of(base.ops), base.ops.kernel_ns, dict[str, dict[str, float]]()
    for group in placed(graph, hardware.find(gpu)):
        each = result.setdefault(group.template, {"groups": 0, "missing": 0, "before_ms": 0.0, "after_ms": 0.0})
        each["groups"] += 1
        for part in group.passes:
            at = positions(part.places, rows)
            each["missing"] += len(part.places) - len(at)
            each["before_ms"] += float(kernel[at].sum()) / 1e6
            each["after_ms"] += float(kernel[at].sum()) * part.ratio / 1e6
    return result
