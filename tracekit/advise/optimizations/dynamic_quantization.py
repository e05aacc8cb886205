"""Weights and activations in 8 bits; activations are quantized for each GEMM (torchao)."""

from dataclasses import replace

from tracekit.advise.optimization import ENGINES, Optimization
from tracekit.advise.reasons import largest, of_step, say, share_of
from tracekit.analyzers.core import Outcomes
from tracekit.analyzers.cost import Cost, Precision, Product
from tracekit.analyzers.predict import (
    TORCHAO,
    Baseline,
    Extra,
    LinearProduct,
    OpList,
    Outcome,
    Rows,
    distinct,
    each_row,
    inner_products,
    linear_product,
    moving,
    pick,
    products_of,
    put,
    retimed,
    shrunk,
    stored_bytes,
    where,
    with_extras,
    with_weights,
)
from tracekit.analyzers.results import Memory, Statements

FEWEST_ROWS = 16
"""Smallest number of rows of a tile, because 8-bit GEMMs have no kernels for a single row."""


class DynamicQuantization(Optimization):
    """Base class of the formats, which define the GEMM's `precision`, its `stream` rate, and additional passes."""

    reads_costs = True
    precision: Precision
    conv1d = False
    """Whether it also replaces transformers' Conv1D."""
    needs: str
    """GPU feature that its GEMM kernels require."""
    dispatch: Outcomes
    """Host time of torchao's Python code around each GEMM, in plain launches."""
    stream: Outcomes
    """Rate of the 8-bit GEMM relative to the model of a plain one."""

    def objection(self, base: Baseline) -> str | None:
        if not base.gpu.supports(self.needs):
            return f"{base.gpu.name} has no {self.precision} GEMMs."
        if base.trains:
            return "The weights would no longer be trained."
        if not _half(base, conv1d=True).any():
            return "The run has no GEMM with weights in 16 bits (quantize from half precision)."
        if not _half(base, conv1d=self.conv1d).any():
            return "Its layers are transformers' Conv1D, which torchao leaves as they are: it replaces nn.Linear."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        rows = _half(base, conv1d=self.conv1d)
        quantized = retimed(base.ops[rows], self._narrowed, base.gpu, outcome)
        ops = put(base.ops, quantized.assign(kernel_ns=quantized.kernel_ns / pick(self.stream, outcome)))
        places = rows.nonzero()[0]
        products = products_of(base.ops, places)
        fused = base.source.runtime in ENGINES
        before = each_row(products, lambda product: [self._fused(product)] if fused else self._before(product, outcome))
        after = each_row(products, lambda product: self._after(product, outcome))
        return with_extras(replace(base, ops=ops), before, after)

    def _narrowed(self, cost: Cost) -> Cost:
        product = linear_product(cost)
        assert product is not None
        inputs = product.rows * product.inputs
        smaller = with_weights(cost, 1, self.precision, self.precision)
        shape = cost.work
        assert isinstance(shape, Product)
        tiled = replace(shape, m=max(shape.m, FEWEST_ROWS), n=max(shape.n, FEWEST_ROWS))
        return replace(smaller, read_bytes=max(smaller.read_bytes - inputs, smaller.weight_bytes), work=tiled)

    def _before(self, product: LinearProduct, outcome: Outcome) -> list[Extra]:
        """Return the kernels that find the largest element of each row and divide by it, as in eager PyTorch."""
        size, rows = product.rows * product.inputs, product.rows
        passes = (
            ("abs", moving(2 * size, 2 * size, "bf16")),
            ("amax", moving(2 * size, 2 * rows, "bf16", "reduction")),
            ("clamp", moving(2 * rows, 4 * rows, "fp32")),
            ("div", moving(4 * rows, 4 * rows, "fp32")),
            ("mul", moving(2 * size + 4 * rows, 2 * size, "bf16")),
            ("clamp", moving(2 * size, 2 * size, "bf16")),
            ("_to_copy", moving(2 * size, size, self.precision, "copy")),
        )
        host = 1 + pick(self.dispatch, outcome) / len(passes)
        return [Extra(TORCHAO + name, cost, host=host) for name, cost in passes]

    def _fused(self, product: LinearProduct) -> Extra:
        """Return the kernel of a serving engine, which scales and casts all rows in one pass over them."""
        size, rows = product.rows * product.inputs, product.rows
        return Extra(TORCHAO + "_to_copy", moving(2 * size, size + 4 * rows, self.precision, "copy"), host=1.0)

    def _after(self, product: LinearProduct, outcome: Outcome) -> list[Extra]:
        return []

    def reason(self, base: Baseline) -> Statements:
        rows = _half(base, conv1d=self.conv1d)
        before = base.ops.cost[rows][0].precision
        rate = base.gpu.sustained_flops(self.precision) / base.gpu.sustained_flops(before)
        return (
            say(
                "dynamic-quantization",
                share_of(base, rows),
                of_step("precision", "precision", self.precision),
                of_step("ratio", "ratio", rate),
                of_step("products", "launches", int(rows.sum())),
            ),
        )

    def evidence(self, base: Baseline) -> Statements:
        rows = _half(base, conv1d=self.conv1d)
        products = map(linear_product, distinct(base.ops.cost[rows]))
        sizes = sorted(product.rows for product in products if product)
        ends = of_step("fewest", "rows", sizes[0]), of_step("most", "rows", sizes[-1])
        return (say("rows-of-products", *ends), *largest(base, rows))

    def memory(self, base: Baseline, before: Memory) -> Memory:
        return shrunk(before, stored_bytes(base, _half(base, conv1d=self.conv1d)), 0.5)


def _half(base: Baseline, *, conv1d: bool) -> Rows:
    half = where(base.ops, lambda cost: cost is not None and cost.precision in ("fp16", "bf16"))
    return inner_products(base, conv1d=conv1d) & half
