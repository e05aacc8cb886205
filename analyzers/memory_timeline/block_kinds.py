"""Derives the kind of a block from the times of its allocation and free.

A trace does not name tensors. A block that is allocated in the forward pass and freed in the backward pass is an
activation. Blocks that remain after the backward pass are gradients, and those that remain after the optimizer are its
state.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.capture_info import CaptureInfo
from tracekit.analyzers.memory_timeline.allocations import Allocations

KINDS = (
    "weights",
    "buffers",
    "optimizer state",
    "inputs and caches",
    "gradients",
    "activations",
    "temporaries",
    "workspaces",
)
_MOMENTS = 2
_FORWARD, _BACKWARD, _OPTIMIZER = "forward", "backward", "optimizer"


def kinds_of(blocks: Allocations, work: pd.DataFrame, weight_bytes: int = 0) -> npt.NDArray[np.object_]:
    """Return the kind of each block. `work` is in launch order; `weight_bytes` of the blocks are weights."""
    kinds = _by_life(blocks, work)
    kinds[_weights(blocks, work, weight_bytes)] = "weights"
    return kinds


def _weights(blocks: Allocations, work: pd.DataFrame, size: int) -> npt.NDArray[np.bool_]:
    """Return the blocks of a model that was built while the trace was recorded: of the blocks that stay, the first
    `size` bytes that were allocated before the first forward pass."""
    forward = (work["phase"] == _FORWARD).to_numpy()
    if not size or not forward.any():
        return np.zeros(len(blocks.bytes), dtype=bool)
    began = work["time_ns"].to_numpy()[forward.argmax()]
    stays = ~blocks.freed & ~blocks.before & (blocks.begin_ns <= began)
    order = np.argsort(blocks.begin_ns, kind="stable")
    total = np.empty(len(order), dtype=np.int64)
    total[order] = np.where(stays, blocks.bytes, 0)[order].cumsum()
    held: npt.NDArray[np.bool_] = stays & (total <= size)
    return held


def _by_life(blocks: Allocations, work: pd.DataFrame) -> npt.NDArray[np.object_]:
    times, phases = work["time_ns"].to_numpy(), np.append(work["phase"].to_numpy(dtype=object), "")
    first, last = np.searchsorted(times, blocks.begin_ns), np.searchsorted(times, blocks.end_ns)
    made, ended = phases[first], np.where(blocks.freed, phases[np.maximum(last - 1, 0)], "")
    brief = last - first <= 1
    if not {_BACKWARD, _OPTIMIZER} & set(phases):
        kept = ~blocks.freed | blocks.before
        return _select([(kept, "inputs and caches"), (brief, "workspaces")], "activations")
    chosen = [
        (blocks.before & (ended == _BACKWARD), "activations"),
        (blocks.before & (ended == _OPTIMIZER), "gradients"),
        (blocks.before, "inputs and caches"),
        ((made == _BACKWARD) & (ended != _BACKWARD), "gradients"),
        ((made == _OPTIMIZER) & ~blocks.freed, "optimizer state"),
        ((made == _FORWARD) & (ended != _FORWARD), "activations"),
        (brief, "workspaces"),
    ]
    return _select(chosen, "temporaries")


def _select(chosen: list[tuple[npt.NDArray[np.bool_], str]], other: str) -> npt.NDArray[np.object_]:
    masks, names = zip(*chosen, strict=True)
    return np.select(masks, names, other).astype(object)


def held_before(size: int, capture: CaptureInfo | None, *, trains: bool) -> dict[str, int]:
    """Split the earlier allocations into weights, buffers and two moments of an optimizer."""
    parts: dict[str, int] = {}
    wanted = {"weights": capture.weight_bytes, "buffers": capture.buffer_bytes} if capture else {}
    if trains and capture:
        wanted["optimizer state"] = _MOMENTS * capture.weight_bytes
    for kind, most in wanted.items():
        parts[kind] = min(most, size)
        size -= parts[kind]
    return parts | {"inputs and caches": size}
