"""Removes waits for the device in the middle of a step."""

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tracekit.advise.optimization import Optimization, refused
from tracekit.advise.optimizations.copies import is_long, values
from tracekit.advise.optimizations.host_work import named_causes
from tracekit.analyzers.attribute import TO_HOST
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.predict import (
    FIXED,
    Baseline,
    HostTail,
    OpList,
    Outcome,
    Rows,
    changed,
    pick,
    rows_by_values,
    which,
)
from tracekit.analyzers.results import Statements, of_step, say

if TYPE_CHECKING:
    from tracekit.apply import Subject

_WORK_BESIDE = 0.05
"""Fraction of a step from which other host work would be hidden by the GPU's."""
_BRANCH = "aten::is_nonzero"
_OF_VALIDATION = "aten::_is_all_true"
"""Call by which distributions check their parameters before Python branches."""
_TRUTH = re.compile(r"^aten::(?:any|all|eq|ne|lt|le|gt|ge|isnan|isinf|isfinite|logical_\w+)$")
_ROWS = "aten::nonzero"
_BY_MASK = re.compile(r"^aten::(?:_?index(?:_put)?(?:_impl)?_?|_unsafe_index(?:_put)?)$")
"""Calls that turn a mask into the numbers of rows first."""
_ONE_BY_ONE = 8
"""Values at the end of a step from which one copy would read all of them."""
_PYTHON = outcomes(__file__)["python_ns"]
"""Host time for each value that a program reads, whether one by one or all at once."""

_NAMES = 'torch.cuda.set_sync_debug_mode("warn")  # names the lines that wait'


class AvoidSyncs(Optimization):
    """The host no longer waits for the device in the middle of a step.

    Waits with later kernels in the step disappear, with the copies of the values that were read; at the high end, the
    last one disappears, too. Of eight or more values that are read one by one at the end, one read remains, and 0.3
    (0 to 1) µs a value. Where Python branches on a truth value (`if done.any():`), the ops that only compute it
    disappear as well, and so do those that find the rows of a mask (`x[mask]`), except at the low end. If each step
    of a script that trains, or works on the host, ends in a wait that reads nothing back
    (`torch.cuda.synchronize()`), steps overlap without it. Copies of 0.1 ms or more move tensors and stay: see
    `pinned-copies`. `compile` counts a graph break at each value that is read back.

    *Refused* if the host does not wait within the step.
    """

    id = "avoid-syncs"
    needs_gpu = False
    needs_torch = False
    fixes_mistake = keeps_kernels = True

    def objection(self, base: Baseline) -> str | None:
        waits = _avoidable(base).any() or _ends_in_wait(base)
        return None if waits else "The host does not wait within a step, unless it frees memory: see memory-management."

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        """Remove the copies to the host that are waited for; at best also the last one of the step."""
        amid = _avoidable(base)
        ops, read = base.ops, _copies_to_host(base) & ~is_long(base) & (amid | (outcome == "best"))
        read |= (_asked_for(base, read) | _rows_of_masks(base)) & (outcome != "worst")
        return ops.assign(
            sync=ops.sync & ~amid,
            name=changed(ops.name, rows_by_values(ops), FIXED),
            kernel_ns=np.where(read, 0.0, ops.kernel_ns),
            host_ns=np.where(read, np.minimum(values(ops) * pick(_PYTHON, outcome), ops.host_ns), ops.host_ns),
        )

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        after = super().applied(base, outcome)
        if base.tail and _ends_in_wait(base):
            host_ns = base.tail.before_ns + base.tail.after_ns
            return replace(after, overlaps=True, tail=HostTail(before_ns=host_ns))
        return after

    def reason(self, base: Baseline) -> Statements:
        waits = int(_avoidable(base).sum()) + _ends_in_wait(base)
        return (say("avoid-syncs", of_step("waits", "launches", waits)),)

    def evidence(self, base: Baseline) -> Statements:
        return named_causes(base, ("sync",))

    def how_to(self, base: Baseline) -> str:
        if _ends_in_wait(base) and not _avoidable(base).any():
            return "# no torch.cuda.synchronize() in the loop: time many steps together, or with torch.cuda.Event"
        if rows_by_values(base.ops).any():
            return "rows = weights.topk(most).indices  # a fixed number, in place of torch.where or nonzero\n" + _NAMES
        if which(base.ops.call, _OF_VALIDATION.__eq__).any() and which(base.ops.call, _BRANCH.__eq__).any():
            return (
                "torch.distributions.Distribution.set_default_validate_args(False)  # or validate_args=False\n" + _NAMES
            )
        return (
            "total += loss.detach()  # keep it on the GPU; read it once in 100 steps with .item()\n"
            "values = tensor.tolist()  # all at once, in place of one .item() for each\n" + _NAMES
        )

    def apply(self, subject: "Subject") -> "Subject":
        raise refused(self, "It is a change of the code that reads values back, which the advice names.")


def values_read_back(base: Baseline) -> int:
    """Return the copies to the host within a step that the host waits for."""
    return int((_amid(base) & _copies_to_host(base)).sum())


def waits_for_nothing(base: Baseline) -> int:
    """Return the waits within a step that read neither a value nor a shape: `torch.cuda.synchronize()`."""
    return int((_amid(base) & (base.ops.category == "kernel") & ~rows_by_values(base.ops)).sum())


def _amid(base: Baseline) -> Rows:
    """Return the waits that are followed by kernels of the trace in the step, or by the last of many values that are
    read one by one. Added kernels do not count."""
    recorded = len(base.recorded.launched_ns)
    traced = base.ops.index < recorded if recorded else np.ones(len(base.ops), dtype=bool)
    kernels = np.flatnonzero((base.ops.category == "kernel") & traced)
    last, places = kernels.max(initial=0), np.arange(len(base.ops))
    reads = np.flatnonzero(base.ops.sync & values(base.ops) & (places > last))
    return np.asarray(base.ops.sync & (places < (reads[-1] if len(reads) >= _ONE_BY_ONE else last)))


def _ends_in_wait(base: Baseline) -> bool:
    """Return whether each step of a script ends in a wait that reads nothing back.

    Captures and benchmarks wait to time each step: only a run that trains, or whose host does other work meanwhile,
    should not.
    """
    if base.tail is None or not base.tail.asks_nothing or base.source.capture is not None:
        return False
    return base.trains or base.outside.total() > _WORK_BESIDE * base.unprofiled_ns


def _avoidable(base: Baseline) -> Rows:
    """Return the waits amid the step, except those for copies of whole tensors, which pinned memory avoids, and those
    that free memory, which disappear with what frees it."""
    return _amid(base) & ~is_long(base) & ~base.waits_to_free


def _asked_for(base: Baseline, read: Rows) -> Rows:
    """Return the ops right before the reads of `if tensor:` that compute nothing but its truth value, of one byte; by
    their names where the trace records no shapes."""
    by_name = which(base.ops.name, _TRUTH.search)
    truth = np.array([cost is None or cost.write_bytes == 1 for cost in base.ops.cost], dtype=bool)
    truth &= base.ops.costed | by_name
    chosen = np.zeros(len(truth), dtype=bool)
    ahead = read & (base.ops.call == _BRANCH)
    while (ahead := np.append(ahead[1:], False) & truth & ~chosen).any():
        chosen |= ahead
    return chosen


def _rows_of_masks(base: Baseline) -> Rows:
    """Return the ops that find the rows of a mask, which the program can know beforehand."""
    finds = which(base.ops.name, _ROWS.__eq__) & which(base.ops.call, _BY_MASK.match)
    return np.asarray(finds)


def _copies_to_host(base: Baseline) -> Rows:
    return base.recorded.copies_like(base.ops, TO_HOST)
