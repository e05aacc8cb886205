"""Measures the peak memory of a configuration at different batch sizes, alone on the device (in the worker)."""

from dataclasses import replace
from typing import Any

from tracekit.analyzers.errors import InputError
from tracekit.bench import measuring
from tracekit.bench.measuring import Request
from tracekit.capture.packages import require
from tracekit.measurement import peak_memory
from tracekit.measurement.side_by_side import ready, warm
from tracekit.subjects.prepared_step import optimizer_of
from tracekit.subjects.subject import Subject

_CACHE: dict[Request, tuple[Subject, Any]] = {}
"""The last run, and in training its optimizer with its state. It has neither compiled code nor CUDA graphs, because the
peak memory is about the same with them."""


def capacity() -> int:
    """Return the free device memory in bytes, after this process has released its own."""
    measuring.release()
    release()
    return int(require("torch.cuda").mem_get_info()[0])


def release() -> None:
    _CACHE.clear()
    peak_memory.release()


def peak_bytes(request: Request, batch: int) -> int | None:
    """Return the peak memory of a step at this batch size in bytes; None if it does not fit."""
    try:
        subject, optimizer = _run(request)
        resized = replace(subject, settings=replace(subject.settings, batch_size=batch))
        return ready(resized, optimizer).peak_memory_bytes()
    except InputError as error:
        if isinstance(error.__cause__, require("torch.cuda").OutOfMemoryError):
            return None
        raise
    finally:
        for subject, _ in _CACHE.values():
            subject.model.zero_grad()  # A step that did not fit leaves gradients.
        peak_memory.release()


def _run(request: Request) -> tuple[Subject, Any]:
    if request not in _CACHE:
        _CACHE.clear()
        changed = measuring.changed(measuring.built(request.settings), request)
        subject = replace(changed, compile_mode="", graphs=False)
        optimizer = optimizer_of(subject, subject.model) if subject.training else None
        warm(subject, optimizer)
        _CACHE[request] = subject, optimizer
    return _CACHE[request]
