"""Projects the run to another GPU."""

from dataclasses import replace

from tracekit.analyzers.evidence import Statements
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.prediction.projection import KERNEL_ERROR, host_range, moved
from tracekit.analyzers.transforms.outcome import Outcome, pick
from tracekit.optimizations.base import Optimization, refused
from tracekit.optimizations.shared.reasons import of_step, say
from tracekit.subjects.subject import Subject

_WORST_FIRST: dict[Outcome, Outcome] = {"low": "high", "expected": "expected", "high": "low"}
"""A low speed-up corresponds to a long time."""


class OtherGPU(Optimization):
    """Another GPU, which --gpu requests; it is not in the registry. Other optimizations apply to the run there."""

    id = "gpu"

    def __init__(self, gpu: GPU) -> None:
        self.gpu, self.argument = gpu, gpu.id
        self.title = f"On {gpu.name}"
        self.caveats = (
            f"Kernel times on {gpu.name} are modelled from those here; its host is assumed to be the same.",
        )

    def objection(self, base: Baseline) -> str | None:
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        return self.applied(base, outcome).ops

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        there, end = moved(base, self.gpu), _WORST_FIRST[outcome]
        kernel = there.ops.kernel_ns * pick(KERNEL_ERROR, end)
        host = pick(host_range(base.gpu, self.gpu), end)
        ops = there.ops.assign(kernel_ns=kernel, host_ns=there.ops.host_ns * host)
        return replace(there, ops=ops, tail=there.tail.scaled(host) if there.tail else None)

    def reason(self, base: Baseline) -> Statements:
        return (say("other-gpu", of_step("here", "name", base.gpu.name), of_step("there", "name", self.gpu.name)),)

    def how_to(self, base: Baseline) -> str:
        return f"Run it on {self.gpu.name}."

    def apply(self, subject: Subject) -> Subject:
        raise refused(self, "This machine does not have that GPU.")
