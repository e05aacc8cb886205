"""Runs one rank of a model on this host: joins the others, takes its part, and writes its trace.

    python -m tracekit.capture.parallel.one_rank SETTINGS FOLDER

SETTINGS is JSON. Rank, number of ranks and address are those of the environment, as torchrun sets them.
"""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.errors import TracekitError
from tracekit.capture import environment, models, record
from tracekit.capture.annotate import NoRanges
from tracekit.capture.attention_kernels import backend_of
from tracekit.capture.distributed import place
from tracekit.capture.latency import WARM_UP_STEPS, StepTimes, summarize
from tracekit.capture.model_errors import model_errors
from tracekit.capture.numerics import numerics
from tracekit.capture.packages import require
from tracekit.capture.parallel.sharding import shard
from tracekit.capture.parallel.split import Split
from tracekit.capture.profiler import export, synchronize
from tracekit.capture.settings import Settings
from tracekit.capture.workloads import Step, adamw, prepare, training_step
from tracekit.runs.folders import TRACE

if TYPE_CHECKING:
    from torch import nn

TIMED_STEPS = 10
"""Every rank must run as many steps as the others, however long they take."""


def main() -> None:
    settings, folder = Settings(**json.loads(sys.argv[1])), Path(sys.argv[2])
    here, split = place(), settings.split
    assert here and split
    try:
        bundled = models.find(settings.model).origin == "bundled"  # an unknown name fails before ranks join
        distributed = require("torch.distributed")
        if settings.device == "cuda":
            require("torch.cuda").set_device(here.rank)
        distributed.init_process_group("nccl" if settings.device == "cuda" else "gloo")
        _write(settings, split, folder / f"rank-{here.rank}" / TRACE, bundled)
        distributed.destroy_process_group()
    except TracekitError as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from error


def _write(settings: Settings, split: Split, path: Path, bundled: bool) -> None:
    """Time and profile the rank's steps, and write the trace."""
    backend = backend_of(settings.attention)
    with (
        model_errors(settings.shown_name, settings.workload, bundled=bundled),
        record.explained(settings, backend),
        numerics(settings.dtype, backend),
    ):
        model = models.build_for(settings)
        step = _step(model, settings, split)
        times = _times(step)
        profiler = record.profiled(model, step, settings)
    on_cuda = settings.device == "cuda"
    peak = require("torch.cuda").max_memory_allocated() if on_cuda else 0
    device = environment.cuda_state() if on_cuda else environment.cpu_state()
    export(profiler, path, record.capture_info(settings, model, record.Measurement(times, peak, device)))


def _step(model: Any, settings: Settings, split: Split) -> Step:
    mesh = require("torch.distributed.device_mesh").init_device_mesh(settings.torch_device, (split.ranks,))
    shard(model, split, mesh)
    if split.kind != "data-parallel":
        return prepare(model, settings)
    replicated: nn.Module = require("torch.nn.parallel").DistributedDataParallel(model)
    return training_step(model, settings, adamw(model, settings), called=replicated)


def _times(step: Step) -> StepTimes:
    samples = []
    for _ in range(WARM_UP_STEPS + TIMED_STEPS):
        begun = time.perf_counter()
        step(NoRanges())
        synchronize()
        samples.append((time.perf_counter() - begun) * 1e6)
    return StepTimes(summarize(samples[WARM_UP_STEPS:]), {})


if __name__ == "__main__":
    main()
