"""Predicts how a training step of one GPU scales over several."""

from pathlib import Path

from tracekit.analyzers import cache, hardware
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.hosts import Link
from tracekit.analyzers.prediction.data_parallel.gradients import gradients
from tracekit.analyzers.prediction.data_parallel.scaling import Scaling
from tracekit.analyzers.prediction.data_parallel.scaling import scaling as predicted
from tracekit.analyzers.prediction.start import start
from tracekit.planning.recommend import RECORD, why_nothing


def scaling(
    path: str | Path,
    ranks: int,
    gpu: str | None = None,
    *,
    link: Link = "nvlink",
    gpu_file: str | Path | None = None,
) -> Scaling:
    """Predict the training step in a trace of one GPU on `ranks` GPUs (DistributedDataParallel, NCCL).

    Each GPU has the batch of the one GPU (weak scaling). With `link` "nvlink" they are in one host; with "ib", in hosts
    of eight with an adapter of 400 Gb/s per GPU. `gpu` names the GPU of the run if the trace does not state it.
    Raises InputError if the trace shows no gradients, or has collectives already.
    """
    trace = cache.load(path)
    analysis, base = start(trace, hardware.selected(gpu, gpu_file))
    if base is None:
        raise InputError(f"Nothing can be predicted from {path}.", why_nothing(analysis), RECORD)
    return predicted(base, gradients(trace, analysis, base), ranks, link)
