"""Loads batches in worker processes while the GPU computes."""

from dataclasses import replace

from tracekit.advise.optimization import FLAG
from tracekit.advise.optimizations.copies import PinnedCopies
from tracekit.advise.optimizations.host_work import LessHostWork
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.predict import Baseline, OpList, Outcome, pick
from tracekit.apply import ScriptChanges

_KNOWN = outcomes(__file__)
WORKERS = _KNOWN["workers"]
"""Number of workers that share the loading."""
MORE_WORKERS = _KNOWN["more_workers"]
"""Factor by which a loader that already has workers becomes faster."""
_PINNED = PinnedCopies()
_IN_PROCESS = "_SingleProcess"
_WITH_WORKERS = "_MultiProcessing"


class DataLoading(LessHostWork):
    """Worker processes make batches while the GPU computes.

    The time in `DataLoader.__next__` is divided by two workers at the low end and by eight as expected; of the rest,
    only the part that exceeds the remaining step is left. A loader that already has workers becomes 1.25 or 2 times as
    fast, at best so fast that the step hides it. Its batches are also pinned, as `pinned-copies` predicts.

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
        faster = MORE_WORKERS if _loader(base, _WITH_WORKERS) else WORKERS
        return max(0.0, loading / pick(faster, outcome) - without.simulate(self.transform(base, outcome))) / loading

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        """Pin the batches that the loader makes."""
        return base.ops if _PINNED.objection(base) else _PINNED.transform(base, outcome)

    def change_script(self, changes: ScriptChanges) -> ScriptChanges:
        return replace(changes, loader_workers=True, pinned=True)

    def how_to(self, base: Baseline) -> str:
        workers = "2 * num_workers" if _loader(base, _WITH_WORKERS) else "8"
        more = "pin_memory=True, persistent_workers=True, prefetch_factor=4"
        return f"DataLoader(dataset, num_workers={workers}, {more})"

    def notes(self, base: Baseline) -> tuple[str, ...]:
        if _loader(base, _IN_PROCESS):
            return ("The DataLoader has no workers, so it makes each batch while the GPU waits.",)
        return ()


def _loader(base: Baseline, kind: str) -> bool:
    rows = base.host_causes[base.host_causes["cause"] == "data-loading"]
    names = rows["name"].astype(str) + rows["caller"].astype(str)
    return bool(names.str.contains(kind, regex=False).any())
