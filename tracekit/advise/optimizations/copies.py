"""Copies between the host and the GPU, and the loading of batches that are copied."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tracekit.advise.host_copies import LONG_NS, NOTABLE
from tracekit.advise.optimization import FLAG, Optimization, refused
from tracekit.advise.optimizations.host_work import MAPPED, LessHostWork
from tracekit.advise.reasons import share_of
from tracekit.analyzers.attribute import PAGEABLE, PINNED, TO_DEVICE, TO_HOST, UNRECORDED_WORK
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import copy_ns
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Outside, Rows, pick
from tracekit.analyzers.results import Statements, of_step, say

if TYPE_CHECKING:
    from tracekit.apply import ScriptChanges, Subject

_KNOWN = outcomes(__file__)
HIDDEN_WHEN_PINNED = _KNOWN["hidden_when_pinned"]
"""Fraction of the copies that kernels hide: none if they stay in the kernels' stream, all if they are prefetched."""

_OFFLOADED = {"offload-overlap": "it pins the memory that it prefetches."}


_BLOCKING = "The DataLoader pins its batches; copies with non_blocking=True are a change of the script."


class PinnedCopies(Optimization):
    """Copies to and from page-locked host memory, which are faster and asynchronous.

    Copies between the device and pageable memory take the modelled time of pinned copies (times 4, 1.1 or 1), and the
    host does not wait for those to the device. If their size is unknown and they take 0.1 ms or more, they take 0.64,
    0.16 or 0.04 of their time. At the high end they overlap with kernels, as for a prefetched batch, and unnamed host
    work disappears if copies to the host are so large that their memory is mapped and unmapped for each copy.

    *Refused* if such copies take less than 1 % of the step.
    """

    id = "pinned-copies"
    effort = FLAG
    needs_torch = False
    excludes: Mapping[str, str] = _OFFLOADED
    fixes_mistake = True

    def objection(self, base: Baseline) -> str | None:
        rows = _pageable(base)
        if not rows.any():
            return "The step copies nothing from or to pageable memory."
        return None if gains(base, rows) else "Copies of pageable memory are a negligible part of the step."

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        rows = _pageable(base)
        times = pinned_ns(base, rows, outcome)
        pinned = base.ops.assign(kernel_ns=times, sync=base.ops.sync & ~(rows & copies(base, TO_DEVICE)))
        return together(base, pinned, rows, pick(HIDDEN_WHEN_PINNED, outcome))

    def outside(self, base: Baseline, outcome: Outcome) -> Outside:
        mapped = (copied_bytes(base) >= MAPPED) & copies(base, TO_HOST, PAGEABLE)
        kept = 0.0 if outcome == "best" and mapped.any() else 1.0
        return base.outside.scaled(kept, ("unexplained",))

    def reason(self, base: Baseline) -> Statements:
        rows = _pageable(base)
        return (say("pinned-copies", of_step("copies", "launches", int(rows.sum())), share_of(base, rows)),)

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        if not changes.on_cuda:
            raise refused(self, "Only copies to a GPU need pinned memory.")
        return replace(changes, pinned=True, caveats=(*changes.caveats, _BLOCKING))

    def apply(self, subject: "Subject") -> "Subject":
        raise refused(self, "It is a change of the code that makes the inputs.")


def _pageable(base: Baseline) -> Rows:
    return copies(base, PAGEABLE)


HIDDEN = _KNOWN["hidden"]
"""Fraction of the kernels' time during which copies proceed."""
LAYERS = 4
"""Number of copies to the device between kernels above which a model counts as offloaded layer by layer."""
NOTABLE_WAIT = 0.2
"""Smallest fraction of the busy time that these copies must take."""

ONE_STREAM = 1.0
"""Smallest possible fraction of the busy time if no work can overlap."""


class OffloadOverlap(Optimization):
    """Offloaded weights, batches and results are copied while the GPU computes.

    Four or more copies to the device between kernels are weights of a model that is offloaded layer by layer. They, and
    those of the first layer, become pinned, and overlap with 30, 90 or 100 % of the kernels. If all work is on one
    stream, pinned copies, such as those of inputs and results, overlap as well: a GPU copies in both directions while
    it computes.

    *Refused* if such copies take less than a fifth of the busy time.
    """

    id = "offload-overlap"
    fixes_mistake = True

    def objection(self, base: Baseline) -> str | None:
        if base.ops.kernel_ns[_waited_for(base)].sum() < NOTABLE_WAIT * base.busy_ns:
            return "Neither copies of weights between layers nor pinned copies take a fifth of the GPU's time."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        rows = _waited_for(base)
        times = pinned_ns(base, rows & ~copies(base, PINNED), outcome)
        ahead = base.ops.assign(kernel_ns=times, sync=base.ops.sync & ~rows)
        return together(base, ahead, rows, pick(HIDDEN, outcome))

    def reason(self, base: Baseline) -> Statements:
        rows = _waited_for(base)
        return (
            say(
                "offload-overlap",
                of_step("copies", "launches", int(base.ops.launches[rows].sum())),
                share_of(base, rows),
            ),
        )

    def how_to(self, base: Baseline) -> str:
        if not _weights(base).any():
            return (
                "coming = torch.cuda.Stream()  # another for results that leave; two buffers each\n"
                "with torch.cuda.stream(coming):  # while this batch is computed\n"
                '    next_batch = pinned.to("cuda", non_blocking=True)\n'
                "torch.cuda.current_stream().wait_stream(coming)"
            )
        return (
            "weights = [w.pin_memory() for w in weights]  # once\n"
            "with torch.cuda.stream(copying):  # while the layer before computes\n"
            '    next_weights = weights[i + 1].to("cuda", non_blocking=True)\n'
            "torch.cuda.current_stream().wait_stream(copying)"
        )

    def apply(self, subject: "Subject") -> "Subject":
        raise refused(self, "It is a change of the code that offloads the model.")


def _waited_for(base: Baseline) -> Rows:
    """Return the copies of offloaded weights and, where all work is on one stream, pinned copies in both directions,
    but not of single values, which the host reads to go on."""
    pinned = copies(base, PINNED) & ~values(base.ops)
    return _weights(base) | (pinned & (base.side_by_side == ONE_STREAM))


def _weights(base: Baseline) -> Rows:
    """Return the copies to the device before the last kernel, if enough of them lie between kernels."""
    kernels = np.flatnonzero(base.ops.category == "kernel")
    places, coming = np.arange(len(base.ops)), copies(base, TO_DEVICE)
    between = coming & (places > kernels.min(initial=len(places))) & (places < kernels.max(initial=-1))
    return coming & (places < kernels.max(initial=-1)) & (between.sum() >= LAYERS)


SLOWER = _KNOWN["slower"]
"""Time of a pinned copy relative to its modelled time."""

UNKNOWN = _KNOWN["unknown"]
"""Ratio of pinned to pageable time of a long copy of unknown size."""
UNKNOWN_SHORT = _KNOWN["unknown_short"]
"""The same ratio for shorter copies, which take much of their time to start."""


def copies(base: Baseline, *patterns: re.Pattern[str]) -> Rows:
    """Return the copies whose recorded name matches the patterns. Only ops that the trace recorded can match."""
    return base.recorded.copies_like(base.ops, *patterns)


def copied_bytes(base: Baseline) -> npt.NDArray[np.float64]:
    """Return the bytes that each op's copy moves over the link, by shapes or as the driver recorded; 0 if unknown."""
    by_shapes = [cost.write_bytes if cost is not None else 0 for cost in base.ops.cost]
    return np.where(base.ops.costed, by_shapes, base.recorded.copied_bytes(base.ops)).astype(np.float64)


def pinned_ns(base: Baseline, rows: Rows, outcome: Outcome) -> npt.NDArray[np.float64]:
    """Return the kernel time of each op if these copies used pinned memory: at most what was recorded."""
    recorded, sizes = base.ops.kernel_ns, copied_bytes(base)
    times = recorded * np.where(recorded >= LONG_NS, pick(UNKNOWN, outcome), pick(UNKNOWN_SHORT, outcome))
    for place in (rows & (sizes > 0)).nonzero()[0]:
        times[place] = copy_ns(int(sizes[place]), base.gpu, "pinned") * pick(SLOWER, outcome)
    return np.where(rows, np.minimum(recorded, times), recorded)


def values(ops: OpList) -> Rows:
    """Return the copies of single values to the host, as `.item()` makes them."""
    return np.asarray(ops.name == "aten::_local_scalar_dense")


def is_long(base: Baseline) -> Rows:
    """Return the copies between host and device that move a tensor rather than a value, by their time."""
    return (copies(base, TO_DEVICE) | copies(base, TO_HOST)) & (base.ops.kernel_ns >= LONG_NS)


def gains(base: Baseline, rows: Rows) -> bool:
    """Return whether these copies take a notable fraction of the step."""
    return float(base.ops.kernel_ns[rows].sum()) > NOTABLE * base.unprofiled_ns


def together(base: Baseline, ops: OpList, rows: Rows, hidden: float) -> OpList:
    """Return the op list in which this fraction of the other recorded work's time hides the rows, as far as nothing is
    computed beside them yet."""
    alone = np.where(rows, base.recorded.exposed_ns(ops), 0.0)
    moved, beside = float(alone.sum()), float(ops.kernel_ns[rows].sum() - alone.sum())
    rest = float(ops.kernel_ns[~rows & (ops.name != UNRECORDED_WORK)].sum()) - beside
    left = max(0.0, moved - hidden * max(rest, 0.0)) / moved if moved else 1.0
    return ops.assign(kernel_ns=ops.kernel_ns - (1 - left) * alone)


WORKERS = _KNOWN["workers"]
"""Number of workers that share the loading."""
MORE_WORKERS = _KNOWN["more_workers"]
"""Factor by which a loader that already has workers becomes faster, by what it does for an item or by more workers."""
_PINNED = PinnedCopies()
_LESS_AN_ITEM = 'part = np.load(path, mmap_mode="r")[start:stop]  # in the dataset: read only what an item needs'


class DataLoading(LessHostWork):
    """Worker processes make batches while the GPU computes.

    The time in `DataLoader.__next__` is divided by four workers at the low end, by eight as expected, and by sixteen at
    best; of the rest, what exceeds the remaining step is left. Loaders with workers become 1.25, 8 or 16 times as fast.
    A step that waits for them, or will without batches that were ready, takes as long as they take: where few arrive,
    twice the longest time without. One thread pins; its recorded time bounds a step except at best.

    *Refused* if data loading takes less than 1 % of the step.
    """

    id = "data-loading"
    effort = FLAG
    causes = ("data-loading",)
    nothing = "The host does not wait for data."

    def left(self, base: Baseline, outcome: Outcome) -> float:
        """Return the fraction of loading that workers do not finish while the rest of the step runs."""
        loading = base.outside.total(self.causes)
        without = replace(base, outside=base.outside.scaled(0.0, self.causes))
        faster = MORE_WORKERS if base.loader.workers else WORKERS
        made = max(loading / pick(faster, outcome), base.loader.pinning_ns if outcome != "best" else 0.0)
        return min(1.0, max(0.0, made - without.simulate(self.transform(base, outcome))) / loading)

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        """Pin the batches that the loader makes."""
        return base.ops if _PINNED.objection(base) else _PINNED.transform(base, outcome)

    def reason(self, base: Baseline) -> Statements:
        if base.slowest_ns:
            return (say("data-loading-stock", of_step("latency", "latency_ns", base.stated_ns)),)
        return super().reason(base)

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        return replace(changes, loader_workers=True, pinned=True)

    def how_to(self, base: Baseline) -> str:
        more = "pin_memory=True, persistent_workers=True, prefetch_factor=4"
        if not base.loader.workers:
            return f"DataLoader(dataset, num_workers=8, {more})"
        return f"{_LESS_AN_ITEM}\nDataLoader(dataset, num_workers=2 * num_workers, {more})  # if there are cores"

    def notes(self, base: Baseline) -> tuple[str, ...]:
        if base.loader.in_process and not base.loader.workers:
            return ("The DataLoader has no workers, so it makes each batch while the GPU waits.",)
        return ()
