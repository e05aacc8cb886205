"""Several optimizations together, which are applied one after another and simulated once."""

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracekit.advise.optimization import Optimization, refused, run_after
from tracekit.advise.reasons import of_step, say
from tracekit.analyzers.core import Interval, Outcomes
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.predict import KERNEL_ERROR, Baseline, OpList, Outcome, host_range, moved, pick
from tracekit.analyzers.results import Memory, Statements

if TYPE_CHECKING:
    from tracekit.apply import ScriptChanges, Subject


class Combined(Optimization):
    """Several optimizations as one. Each step is applied to the run that results from the steps before it."""

    def __init__(self, steps: tuple[Optimization, ...]) -> None:
        self.steps = steps
        self.id = "+".join(step.name for step in steps)
        self.title = " + ".join(step.title for step in steps)
        self.caveats = tuple(dict.fromkeys(caveat for step in steps for caveat in step.caveats))
        self.throughput = any(step.throughput for step in steps)
        self.fixes_mistake = any(step.fixes_mistake for step in steps)

    def objection(self, base: Baseline) -> str | None:
        refused = conflict(self.steps)
        if refused:
            return refused
        for step, before in self.stages(base):
            objection = step.obstacle(before)
            if objection:
                return objection if before is base else f"{step.title}, after what comes before it: {objection}"
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        return self.applied(base, outcome).ops

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        for step in self.steps:
            base = run_after(step, base, outcome)
        return base

    def reason(self, base: Baseline) -> Statements:
        return tuple(each for step, before in self.stages(base) for each in step.reason(before))

    def notes(self, base: Baseline) -> tuple[str, ...]:
        lines = (line for step, before in self.stages(base) for line in step.notes(before))
        return tuple(dict.fromkeys(lines))

    def how_to(self, base: Baseline) -> str:
        lines = (line for step, before in self.stages(base) for line in step.how(before).split("\n"))
        return "\n".join(dict.fromkeys(lines))

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        for step in self.steps:
            changes = step.change_script(changes)
        return changes

    def apply(self, subject: "Subject") -> "Subject":
        for step in self.steps:
            subject = step.apply(subject)
        return subject

    def evidence(self, base: Baseline) -> Statements:
        return tuple(dict.fromkeys(each for step, before in self.stages(base) for each in step.evidence(before)))

    def memory(self, base: Baseline, before: Memory) -> Memory:
        for step, start in self.stages(base):
            before = step.memory(start, before)
        return before

    def work(self, base: Baseline) -> float:
        product = 1.0
        for step, before in self.stages(base):
            product *= step.work(before)
        return product

    def stages(self, base: Baseline) -> Iterator[tuple[Optimization, Baseline]]:
        """Yield each step with the expected run that it starts from."""
        for step in self.steps:
            yield step, base
            if step is not self.steps[-1]:
                base = run_after(step, base, "expected")


def steps_of(optimization: Optimization) -> tuple[Optimization, ...]:
    """Return the optimizations that an optimization consists of: itself, unless it combines several."""
    return optimization.steps if isinstance(optimization, Combined) else (optimization,)


def conflict(steps: tuple[Optimization, ...]) -> str | None:
    """Return why two of these steps cannot be combined; None if all can."""
    for one, other in combinations(steps, 2):
        reason = one.excludes.get(other.id) or other.excludes.get(one.id)
        if reason or one.id == other.id:
            return f"{one.title} and {other.title} exclude each other: {reason or 'it is the same thing twice.'}"
    return None


def _worst_if_long(times: Interval) -> Outcomes:
    return Outcomes(times.high, times.expected, times.low)


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
        there = moved(base, self.gpu)
        kernel = there.ops.kernel_ns * pick(_worst_if_long(KERNEL_ERROR), outcome)
        host = pick(_worst_if_long(host_range(base.gpu, self.gpu)), outcome)
        ops = there.ops.assign(kernel_ns=kernel, host_ns=there.ops.host_ns * host)
        return replace(there, ops=ops, tail=there.tail.scaled(host) if there.tail else None)

    def reason(self, base: Baseline) -> Statements:
        return (say("other-gpu", of_step("here", "name", base.gpu.name), of_step("there", "name", self.gpu.name)),)

    def how_to(self, base: Baseline) -> str:
        return f"Run it on {self.gpu.name}."

    def apply(self, subject: "Subject") -> "Subject":
        raise refused(self, "This machine does not have that GPU.")
