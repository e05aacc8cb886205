"""One kernel for all arithmetic of an optimizer, instead of one per operation."""

import re
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

import pandas as pd
from msgspec.structs import replace

from tracekit.advise.optimization import FLAG, Optimization, refused
from tracekit.advise.reasons import largest, launches, of_step, say, share_of
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import Cost, estimate_ns
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, in_phase, joined, pick, where, which
from tracekit.analyzers.results import Memory, Statements

if TYPE_CHECKING:
    from tracekit.apply import ScriptChanges, Subject

_KNOWN = outcomes(__file__)
HOST_KEPT = _KNOWN["host_kept"]
"""Fraction of the host time of passes over lists that remains, because the lists are still built in Python."""
HOST_PER_PARAMETER_NS = _KNOWN["host_per_parameter_ns"]
"""Host time that a fused call adds per parameter if the optimizer launched each operation for each parameter: its four
tensors become elements of lists."""
KERNEL_ERROR = _KNOWN["kernel_error"]
_LISTS = re.compile("_foreach_(?!copy_)")
"""Passes over lists, except those that copy gradients of another type."""
_ARITHMETIC = re.compile(r"^aten::(?:mul|add|sub|div|neg|lerp|sqrt|rsqrt|reciprocal|addcmul|addcdiv|maximum|copy)_?$")
"""Operations on one parameter, where the trace records no shapes."""
_A_PASS = 3
"""Copies of the parameters that a pass of unknown cost moves: it reads two and writes one."""
_READ, _WRITTEN = 4, 3
"""Copies of the parameters that Adam reads and writes: it reads parameters, gradients and two moments, and writes
all but the gradients."""


_WITH_TRAINER = '  # with Trainer: TrainingArguments(optim="adamw_torch_fused")'


class FusedOptimizer(Optimization):
    """One kernel for the whole optimizer step in place of one pass per operation.

    The passes over the parameters (`_foreach_*`, or one operation after the other for each parameter) become one that
    moves seven copies of them: it reads parameters, gradients and two moments, and writes all but the gradients. The
    host time is 0.6 (0.4 to 0.9) of that of passes over lists. For an optimizer that handles each parameter separately,
    it is the time before the first operation, and 2 (1 to 4) µs per parameter. Without shapes, a pass counts as three
    copies of the parameters.

    *Refused* if the optimizer is fused already, or the run does not train.
    """

    id = "fused-optimizer"
    effort = FLAG

    def objection(self, base: Baseline) -> str | None:
        if not base.trains:
            return "The run has no optimizer step."
        if any("aten::_fused_" in name for name in base.ops.name):
            return "The optimizer is fused already."
        return None if _steps(base).any() else "The run has no unfused optimizer step."

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        rows, cost = _steps(base), _fused_cost(base) if _is_priced(base) else None
        first, passes = int(rows.argmax()), base.ops[rows]
        one = passes[:1].assign(
            name="aten::_fused_adamw_",
            host_ns=_host_ns(base, outcome),
            kernel_ns=passes.kernel_ns.sum() * min(1.0, _ratio(base, cost) * pick(KERNEL_ERROR, outcome)),
            launches=max(1, round(passes.launches.sum() / len(passes))),
            sync=passes.sync.any(),
            cost=cost,
        )
        return joined(base.ops[:first], one, base.ops[first:][~rows[first:]])

    def reason(self, base: Baseline) -> Statements:
        rows = _steps(base)
        passes = (share_of(base, rows), of_step("passes", "launches", int(rows.sum())))
        if not _is_priced(base):
            return (say("fused-optimizer-unsized", *passes),)
        moved = sum(cost.bytes for cost in base.ops.cost[rows])
        return (
            say(
                "fused-optimizer",
                *passes,
                of_step("moved", "bytes", moved),
                of_step("after", "bytes", _fused_cost(base).bytes),
            ),
        )

    def evidence(self, base: Baseline) -> Statements:
        rows = _steps(base)
        return (say("optimizer-launches", launches(base, rows)), *largest(base, rows))

    def how_to(self, base: Baseline) -> str:
        adam = any(part in name for name in base.ops.name[_steps(base)] for part in ("addcdiv", "lerp", "sqrt"))
        name, trainer = ("AdamW", _WITH_TRAINER) if adam else ("SGD", "")
        return f"optimizer = torch.optim.{name}(model.parameters(), lr=lr, fused=True){trainer}"

    def memory(self, base: Baseline, before: Memory) -> Memory:
        return replace(before, temporaries=0)

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        return replace(changes, fused_optimizer=True)

    def apply(self, subject: "Subject") -> "Subject":
        if not subject.training:
            raise refused(self, "The workload does not train.")
        return replace(subject, fused_optimizer=True).with_own_weights()


def _steps(base: Baseline) -> Rows:
    """Return the rows that update parameters: passes over lists, or without these, operations on one parameter each."""
    lists = which(base.ops.name, _LISTS.search)
    if lists.any():
        steps = lists & (in_phase(base.ops, "optimizer") | in_phase(base.ops, ""))
        return steps & base.ops.costed if (steps & base.ops.costed).any() else steps
    steps = in_phase(base.ops, "optimizer")
    if (steps & base.ops.costed).any():
        return steps & where(base.ops, lambda cost: cost is not None and cost.family == "pointwise")
    return steps & which(base.ops.name, _ARITHMETIC.search)


def _is_priced(base: Baseline) -> bool:
    """Return whether the costs of the passes are known."""
    return bool(base.ops.costed[_steps(base)].any())


def _ratio(base: Baseline, cost: Cost | None) -> float:
    """Return the kernel time of one pass with this cost, relative to that of all; by the number of passes without a
    cost."""
    passes = base.ops[_steps(base)]
    if cost is None:
        return (_READ + _WRITTEN) / (_A_PASS * len(passes) / _parameters(base))
    return estimate_ns(cost, base.gpu) / sum(estimate_ns(each, base.gpu) for each in passes.cost)


def _updates_each_parameter(base: Baseline) -> bool:
    return not any("_foreach_" in name for name in base.ops.name[_steps(base)])


def _parameters(base: Baseline) -> float:
    """Return the number of parameters that an optimizer updates if it launches each operation for each of them."""
    return float(median(Counter(base.ops.name[_steps(base)]).values()))


def _host_ns(base: Baseline, outcome: Outcome) -> float:
    host = base.ops.host_ns[_steps(base)]
    if not _updates_each_parameter(base):
        return float(host.sum() * pick(HOST_KEPT, outcome))
    gathered, added = float(host[0]), _parameters(base) * pick(HOST_PER_PARAMETER_NS, outcome)
    return min(gathered + added, float(host.sum()))


def _fused_cost(base: Baseline) -> Cost:
    """Return the cost of accessing each parameter, gradient and moment once."""
    passes = base.ops[_steps(base)]
    widest = max(passes.cost, key=lambda cost: cost.write_bytes)
    copy = _copy_bytes(passes) if _updates_each_parameter(base) else widest.write_bytes
    flops = sum(cost.flops for cost in passes.cost)
    return replace(widest, flops=flops, read_bytes=_READ * copy, write_bytes=_WRITTEN * copy)


def _copy_bytes(passes: OpList) -> float:
    """Return the bytes of all parameters; most operations write each parameter once."""
    written = pd.Series([cost.write_bytes for cost in passes.cost], dtype=float)
    return float(written.groupby(passes.name).sum().median())
