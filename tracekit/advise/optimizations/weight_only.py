"""Weights stored in 8 or 4 bits and widened inside the GEMM."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tracekit.advise.optimization import Optimization
from tracekit.advise.reasons import largest, of_step, say, share_of
from tracekit.analyzers.core import numbers, outcomes
from tracekit.analyzers.cost import Cost, estimate_ns
from tracekit.analyzers.predict import (
    SUBCLASS,
    Baseline,
    OpList,
    Outcome,
    Rows,
    inner_products,
    linear_product,
    pick,
    plain_launch_ns,
    retimed,
    shrunk,
    stored_bytes,
    where,
    with_weights,
)
from tracekit.analyzers.results import Memory, Statements

if TYPE_CHECKING:
    from tracekit.apply import Subject


class WeightOnly(Optimization):
    """Base class of the formats, which define `bits` per weight."""

    reads_costs = True
    bits: int
    scales_bytes: float
    """Bytes of scales and zero points per weight."""
    needs: str
    """GPU feature that its kernels require."""

    conv1d = False
    """Whether it also replaces transformers' Conv1D."""
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
        products = where(base.ops, _is_half)
        if not products.any():
            return "The run has no GEMM with weights in 16 bits (quantize from half precision)."
        if not replaced(base, conv1d=self.conv1d).any():
            return "Its layers are transformers' Conv1D, which torchao leaves as they are: it replaces nn.Linear."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        rows = replaced(base, conv1d=self.conv1d)
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
        return shrunk(
            before, stored_bytes(base, replaced(base, conv1d=self.conv1d)), (self.bits / 8 + self.scales_bytes) / 2
        )

    def reason(self, base: Baseline) -> Statements:
        rows = replaced(base, conv1d=self.conv1d)
        most = max(product.rows for cost in base.ops.cost[rows] if (product := linear_product(cost)))
        shrinking = of_step("ratio", "ratio", 16 // self.bits)
        return (say("narrow-weights", share_of(base, rows), shrinking, of_step("rows", "rows", most)),)

    def evidence(self, base: Baseline) -> Statements:
        rows = replaced(base, conv1d=self.conv1d)
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


def _is_half(cost: Cost | None) -> bool:
    return cost is not None and cost.precision in ("fp16", "bf16") and linear_product(cost) is not None


def replaced(base: Baseline, *, conv1d: bool = False) -> Rows:
    """Return the rows of every nn.Linear except the head, including small ones."""
    return inner_products(base, conv1d=conv1d) & where(base.ops, _is_half)


WEIGHT_FORMATS = ("int8-weight-only", "int4-weight-only", "nf4", "llm-int8", "fp8-dynamic", "int8-dynamic")
"""Ids of the optimizations that change how weights are stored."""


def other_formats(own: str) -> dict[str, str]:
    """Return the formats that `own` cannot be combined with, and why."""
    return {other: "the weights are stored in one format." for other in WEIGHT_FORMATS if other != own}


def from_pretrained(configuration: str, *, also: str = "", compiled: bool = False) -> str:
    """Return code that loads a model with a configuration of torchao.quantization and skips the head.

    `also` are other names to import for the configuration.
    """
    names = ", ".join(filter(None, [configuration.partition("(")[0], also]))
    load = (
        f"from torchao.quantization import {names}\n"
        f"config = TorchAoConfig({configuration})\n"
        "model = AutoModelForCausalLM.from_pretrained(name, quantization_config=config)"
    )
    return f"{load}\nmodel = torch.compile(model)" if compiled else load


GROUP = 128
"""Number of weights that share a scale and a zero point, of two bytes each."""
_KNOWN = outcomes(__file__)
_NUMBERS = numbers(__file__)
KERNEL_ERROR = _KNOWN["kernel_error"]
"""Time relative to the kernel model, which was fitted to kernels that ran repeatedly with parts of their weights in the
L2 cache."""
WIDENING_TILES = _NUMBERS["widening_tiles"]
"""Time of a GEMM whose tiles widen weights in shared memory (such as Marlin), relative to the plain GEMM, with many
rows."""


class Int4WeightOnly(WeightOnly):
    """Weights in int4, with a scale and a zero point for each 128 weights (torchao's tinygemm kernels).

    The kernels widen the weights again for every 16 rows; their time was fitted on an H200. Eager code adds the host
    time of four (1 to 6) plain launches per layer for the tensor subclass (18 to 26 µs on an H200 host).

    *Hurts* from about 16 to 64 rows on, and on small layers (published, A100: 2.05 times as fast at one row, 0.94 at
    256 rows with kernels that widen tiles, 0.42 for layers of 0.5 to 4 million weights).
    """

    id = "int4-weight-only"
    excludes: Mapping[str, str] = other_formats("int4-weight-only")
    eager = True
    bits = 4
    scales_bytes = 4 / GROUP
    needs = "bf16"

    def kernel_ns(self, narrow_ns: float, before_ns: float, before: Cost, base: Baseline, outcome: Outcome) -> float:
        """Return the time by the model of tinygemm's kernels, which widen weights again for every 16 rows.

        At best, other kernels are used.
        """
        tinygemm = narrow_ns * pick(KERNEL_ERROR, outcome)
        return min(tinygemm, before_ns * WIDENING_TILES) if outcome == "best" else tinygemm

    def how_to(self, base: Baseline) -> str:
        configuration = f'Int4WeightOnlyConfig(group_size={GROUP}, int4_packing_format="tile_packed_to_4d")'
        return from_pretrained(configuration)

    def apply(self, subject: "Subject") -> "Subject":
        """Quantize in the layout of PyTorch's own kernel, which requires bf16."""
        from tracekit.apply import quantized  # only to run a model

        return quantized.with_torchao(
            subject.with_dtype("bf16"), "Int4WeightOnlyConfig", int4_packing_format="tile_packed_to_4d"
        )
