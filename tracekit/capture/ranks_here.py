"""Runs a model on several ranks of this host, each in its own process, and writes one trace per rank."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import InputError, TracekitError
from tracekit.capture import device_run, models
from tracekit.capture.emitted_ranges import NoRanges
from tracekit.capture.fake.ranks import shard
from tracekit.capture.latency import WARM_UP_STEPS, StepTimes, export, summarize, synchronize
from tracekit.capture.precision import backend_of, numerics
from tracekit.capture.workloads import Step, adamw, prepare, training_step
from tracekit.run import TRACE, Say, Settings, Split, environment, model_errors, place, require

if TYPE_CHECKING:
    from torch import nn


_POLL_S = 0.1


def write(settings: Settings, split: Split, folder: Path, say: Say) -> None:
    """Write FOLDER/rank-N/trace.json.gz of each rank. If a rank fails, the others are ended and InputError is
    raised."""
    say(f"starting {split.ranks} ranks of {settings.shown_name} ({split.kind}) on {settings.device}")
    port = _free_port()
    with tempfile.TemporaryDirectory() as logs:
        errors = [Path(logs) / str(rank) for rank in range(split.ranks)]
        ranks = [_started(settings, folder, rank, split.ranks, port, error) for rank, error in enumerate(errors)]
        try:
            failed = _failed(ranks)
        finally:
            for each in ranks:
                each.kill()
                each.wait()
        if failed is not None:
            lines = errors[failed].read_text(errors="replace").strip().splitlines()
            why = lines[-1][:500] if lines else f"Its process ended with status {ranks[failed].returncode}."
            raise InputError(f"Rank {failed} failed.", why, "Try one GPU first: leave out the options of ranks.")


def _started(
    settings: Settings, folder: Path, rank: int, ranks: int, port: int, error: Path
) -> "subprocess.Popen[bytes]":
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_PORT": port}
    variables = {**os.environ, **{name: str(value) for name, value in place.items()}, "MASTER_ADDR": "127.0.0.1"}
    command = [sys.executable, "-m", "tracekit.capture.ranks_here", json.dumps(settings.as_dict()), str(folder)]
    with error.open("wb") as written:
        return subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=written)


def _failed(ranks: Sequence["subprocess.Popen[bytes]"]) -> int | None:
    """Wait until all ranks have ended or one has failed; return the number of the failed one."""
    while True:
        states = [each.poll() for each in ranks]
        failed = [rank for rank, state in enumerate(states) if state not in (None, 0)]
        if failed or None not in states:
            return failed[0] if failed else None
        time.sleep(_POLL_S)


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


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
        device_run.explained(settings, backend),
        numerics(settings.dtype, backend),
    ):
        model = models.build_for(settings)
        step = _step(model, settings, split)
        times = _times(step)
        profiler = device_run.profiled(model, step, settings)
    on_cuda = settings.device == "cuda"
    peak = require("torch.cuda").max_memory_allocated() if on_cuda else 0
    device = environment.device_state(on_cuda=on_cuda)
    export(profiler, path, device_run.capture_info(settings, model, device_run.Measurement(times, peak, device)))


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
