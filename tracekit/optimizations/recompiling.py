"""Compiles once instead of again in measured steps."""

import numpy as np

from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.host_calibration import MOST_TO_LAUNCH_NS
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.prediction.outside import Outside
from tracekit.analyzers.prediction.values import Costs
from tracekit.analyzers.transforms.outcome import Outcome, pick
from tracekit.analyzers.transforms.plain_launch import plain_launch_ns
from tracekit.optimizations.shared.host_work import LessHostWork

LEFT = Interval(0.3, 0.0, 0.0)
"""Fraction of the compilation time that remains, because a few variants are still compiled with dynamic shapes."""
_WARM = 2.0
"""Host time of a launch in code that has run before, in plain launches."""


class Recompiling(LessHostWork):
    """Code is compiled once, and not again in measured steps.

    The compilation time inside the step disappears, with the kernels that autotuning runs and the unnamed host work
    around it. A launch takes at most half a millisecond, because only the first launches of new code take longer. At
    the low end, 30 % of the compilation and all host work around it remain, for a few variants of shapes. At the high
    end, launches take as long as in code that has run before.

    *Refused* if nothing is compiled in the step.
    """

    id = "recompiling"
    title = "No compiling in the loop"
    costs = Costs("about the same", "unchanged", "one argument, or padded shapes")
    causes = ("compilation",)
    names_function = False
    nothing = "Nothing is compiled in the step."
    caveats = ("Code for any shape may be a few percent slower than code for one.",)

    def left(self, base: Baseline, outcome: Outcome) -> float:
        return pick(LEFT, outcome)

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        """Remove the kernels that were tried out during compilation."""
        tried, left = base.recorded.while_compiling(base.ops), self.left(base, outcome)
        times = {name: getattr(base.ops, name) * np.where(tried, left, 1.0) for name in ("host_ns", "kernel_ns")}
        if outcome != "low":
            warm = outcome == "high" and base.running.compiled
            most = _WARM * plain_launch_ns(base) if warm else MOST_TO_LAUNCH_NS
            times["host_ns"] = np.minimum(times["host_ns"], most)
        return base.ops.assign(**times, sync=base.ops.sync & (~tried | (left > 0)))

    def outside(self, base: Baseline, outcome: Outcome) -> Outside:
        return super().outside(base, outcome).scaled(1.0 if outcome == "low" else 0.0, ("unexplained",))

    def how_to(self, base: Baseline) -> str:
        return (
            "model = torch.compile(model, dynamic=True)  # or torch._dynamo.mark_dynamic(inputs, 1)\n"
            "# TORCH_LOGS=recompiles says which guard fails; pad inputs to a few lengths, and warm each up"
        )
