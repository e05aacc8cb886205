"""Weights stored in 8 or 4 bits and widened inside the GEMM."""

from abc import abstractmethod

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.evidence import Statements
from tracekit.analyzers.kernel_time import estimate_ns
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.memory import Memory
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.transforms.by_cost import Rows, where
from tracekit.analyzers.transforms.extra_kernels import SUBCLASS
from tracekit.analyzers.transforms.linear_products import (
    inner_products,
    linear_product,
    shrunk,
    stored_bytes,
    with_weights,
)
from tracekit.analyzers.transforms.outcome import Outcome, pick
from tracekit.analyzers.transforms.plain_launch import plain_launch_ns
from tracekit.analyzers.transforms.retime import retimed
from tracekit.optimizations.base import Optimization
from tracekit.optimizations.shared.reasons import largest, of_step, say, share_of


class WeightOnly(Optimization):
    """Base class of the formats, which define `bits` per weight."""

    reads_costs = True
    bits: int
    scales_bytes: float
    """Bytes of scales and zero points per weight."""
    needs: str
    """GPU feature that its kernels require."""

    eager: bool
    """Whether it is used without compiling; then each layer's call goes through Python."""

    @abstractmethod
    def kernel_ns(self, narrow_ns: float, before_ns: float, before: Cost, base: Baseline, outcome: Outcome) -> float:
        """Return the time of a GEMM with narrow weights, given the kernel model's times for it and for the original."""

    def objection(self, base: Baseline) -> str | None:
        if not base.gpu.supports(self.needs):
            return f"{base.gpu.name} has no kernels for it."
        if base.trains:
            return "The weights would no longer be trained."
        products = where(base.ops, _in_half)
        if not products.any():
            return "The run has no GEMM with weights in 16 bits (quantize from half precision)."
        if not replaced(base).any():
            return "Its layers are transformers' Conv1D, which torchao leaves as they are: it replaces nn.Linear."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        rows = replaced(base)
        narrow = retimed(base.ops[rows], self.narrow, base.gpu, outcome)
        before, costs = base.ops.kernel_ns[rows], base.ops.cost[rows]
        after = [self.kernel_ns(*each, base, outcome) for each in zip(narrow.kernel_ns, before, costs, strict=True)]
        kernel, cost = base.ops.kernel_ns.copy(), base.ops.cost.copy()
        kernel[rows], cost[rows] = after, narrow.cost
        dispatch = pick(SUBCLASS, outcome) * plain_launch_ns(base) if self.eager else 0.0
        return base.ops.assign(host_ns=base.ops.host_ns + dispatch * rows, kernel_ns=kernel, cost=cost)

    def narrow(self, cost: Cost) -> Cost:
        """Return the cost of the GEMM with narrow weights."""
        return with_weights(cost, self.bits / 8 + self.scales_bytes, "int4" if self.bits == 4 else "int8")

    def memory(self, base: Baseline, before: Memory) -> Memory:
        return shrunk(before, stored_bytes(base, replaced(base)), (self.bits / 8 + self.scales_bytes) / 2)

    def reason(self, base: Baseline) -> Statements:
        rows = replaced(base)
        most = max(product.rows for cost in base.ops.cost[rows] if (product := linear_product(cost)))
        shrinking = of_step("ratio", "ratio", 16 // self.bits)
        return (say("narrow-weights", share_of(base, rows), shrinking, of_step("rows", "rows", most)),)

    def evidence(self, base: Baseline) -> Statements:
        rows = replaced(base)
        reading = sum(
            min(cost.weight_bytes / base.gpu.bandwidth * 1e9, estimate_ns(cost, base.gpu))
            for cost in base.ops.cost[rows]
        )
        sizes = sorted(product.weights for cost in base.ops.cost[rows] if (product := linear_product(cost)))
        ends = of_step("fewest", "weights", sizes[0]), of_step("most", "weights", sizes[-1])
        return (
            say("reading-weights", of_step("time", "kernel_ns", reading)),
            say("weights-of-a-layer", *ends),
            *largest(base, rows),
        )


def _in_half(cost: Cost | None) -> bool:
    return cost is not None and cost.precision in ("fp16", "bf16") and linear_product(cost) is not None


def replaced(base: Baseline) -> Rows:
    """Return the rows of every nn.Linear except the head, including small ones."""
    return inner_products(base, conv1d=False) & where(base.ops, _in_half)
