"""Copies from page-locked host memory, which are faster and do not block the host."""

from collections.abc import Mapping
from dataclasses import replace

from tracekit.analyzers.evidence import Statements, of_step, say
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.prediction.outside import Outside
from tracekit.analyzers.prediction.values import Costs
from tracekit.analyzers.transforms.by_cost import Rows
from tracekit.analyzers.transforms.outcome import Outcome, pick
from tracekit.optimizations.base import Optimization, refused
from tracekit.optimizations.shared.host_device_copies import copied_bytes, copies, gains, pinned_ns, together
from tracekit.optimizations.shared.reasons import share_of
from tracekit.subjects.script_changes import ScriptChanges
from tracekit.subjects.subject import Subject

HIDDEN = Interval(0.0, 0.0, 1.0)
"""Fraction of the copies that kernels hide: none if they stay in the kernels' stream, all if they are prefetched."""
_MAPPED = 32 << 20
"""Size in bytes from which the C library maps new memory for each allocation, and unmaps it when it is freed."""

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
    title = "Pinned host memory"
    excludes: Mapping[str, str] = _OFFLOADED
    fixes_mistake = True
    costs = Costs("page-locked host memory", "unchanged", "one argument")
    caveats = ("Pinning takes time: pin once, or let the DataLoader do it in its own thread.",)

    def objection(self, base: Baseline) -> str | None:
        rows = _pageable(base)
        if not rows.any():
            return "The step copies nothing from or to pageable memory."
        return None if gains(base, rows) else "Copies of pageable memory are a negligible part of the step."

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        rows = _pageable(base)
        times = pinned_ns(base, rows, outcome)
        pinned = base.ops.assign(kernel_ns=times, sync=base.ops.sync & ~(rows & copies(base, "HtoD")))
        return together(pinned, rows, pick(HIDDEN, outcome))

    def outside(self, base: Baseline, outcome: Outcome) -> Outside:
        mapped = (copied_bytes(base) >= _MAPPED) & copies(base, "DtoH|-> Pageable") & _pageable(base)
        kept = 0.0 if outcome == "high" and mapped.any() else 1.0
        return base.outside.scaled(kept, ("unexplained",))

    def reason(self, base: Baseline) -> Statements:
        rows = _pageable(base)
        return (say("pinned-copies", of_step("copies", "launches", int(rows.sum())), share_of(base, rows)),)

    def how_to(self, base: Baseline) -> str:
        return (
            "loader = DataLoader(dataset, pin_memory=True)  # or tensor.pin_memory(), once\n"
            'batch = batch.to("cuda", non_blocking=True)'
        )

    def change_script(self, changes: ScriptChanges) -> ScriptChanges:
        if not changes.on_cuda:
            raise refused(self, "Only copies to a GPU need pinned memory.")
        return replace(changes, pinned=True, caveats=(*changes.caveats, _BLOCKING))

    def apply(self, subject: Subject) -> Subject:
        raise refused(self, "It is a change of the code that makes the inputs.")


def _pageable(base: Baseline) -> Rows:
    return copies(base, "Pageable")
