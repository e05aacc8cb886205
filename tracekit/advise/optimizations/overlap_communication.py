"""Overlaps collectives with kernels."""

from typing import TYPE_CHECKING

import numpy as np

from tracekit.advise.optimization import REWRITE, Optimization, refused
from tracekit.advise.optimizations.copies import together
from tracekit.analyzers.attribute import is_communication
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, pick, present
from tracekit.analyzers.results import Statements, of_step, say

if TYPE_CHECKING:
    from tracekit.apply import Subject

_KNOWN = outcomes(__file__)
HIDDEN = _KNOWN["hidden"]
"""Fraction of the kernels' time during which collectives proceed: that of the backward pass; at best, the whole
time."""
NOTABLE = 0.05
SLOW = 0.3
"""Fraction of the link's rate. A large collective below it is limited by its link or by other ranks."""


class OverlapCommunication(Optimization):
    """Collectives overlap with kernels, over the fastest links.

    Exposed collectives proceed during 20, 50 or 100 % of the other kernels' time. The reason reports a rate below 30 %
    of the link's, which is due to the link or a slower rank.

    *Refused* if less than 5 % of the step is exposed communication.
    """

    id = "overlap-communication"
    effort = REWRITE
    fixes_mistake = keeps_kernels = True

    def objection(self, base: Baseline) -> str | None:
        rows = _collectives(base)
        if not rows.any():
            return "The step has no collectives."
        exposed = float(base.recorded.exposed_ns(base.ops)[rows].sum())
        return None if exposed > NOTABLE * base.unprofiled_ns else "Hardly any communication is exposed."

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        return together(base, base.ops, _collectives(base), pick(HIDDEN, outcome))

    def reason(self, base: Baseline) -> Statements:
        rate, link = _bus_gbs(base), base.gpu.nvlink_gbs / 2 or base.gpu.pcie_gbs
        exposed = base.recorded.exposed_ns(base.ops)[_collectives(base)].sum() / base.busy_ns
        statements = (say("overlap-communication", of_step("share", "share", float(exposed))),)
        if rate and rate < SLOW * link:
            rates = of_step("rate", "link_bytes", rate * 1e9), of_step("link", "link_bytes", link * 1e9)
            return (*statements, say("slow-link", *rates))
        return statements

    def apply(self, subject: "Subject") -> "Subject":
        raise refused(self, "It is a change of the code that distributes the model.")


def _collectives(base: Baseline) -> Rows:
    return present(base.ops.message) | is_communication(base.ops.name)


def _bus_gbs(base: Baseline) -> float:
    """Return the rate in GB/s at which links carried large collectives, by their exposed time; 0 if unknown."""
    rows = base.ops[present(base.ops.message)]
    known = np.array([message.known for message in rows.message], dtype=bool)
    moved = sum(message.carried for message in rows.message[known])
    time = float(rows.kernel_ns[known].sum())
    return moved / time if time else 0.0
