"""fp8 and int8 GEMMs: weights are stored in 8 bits, and activations are scaled and cast row by row (torchao)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from tracekit.advise.optimization import ENGINES, Optimization, refused
from tracekit.advise.optimizations.weight_only import from_pretrained, other_formats
from tracekit.advise.reasons import largest, of_step, say, share_of
from tracekit.analyzers.core import InputError, Outcomes, outcomes
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
    which,
    with_extras,
    with_weights,
)
from tracekit.analyzers.results import Memory, Statements

if TYPE_CHECKING:
    from tracekit.apply import Subject

_TILE_ROWS = 16
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
        before = each_row(
            products, lambda product: [self._fused(product)] if fused else self._kernels_before(product, outcome)
        )
        after = each_row(products, lambda product: self._kernels_after(product, outcome))
        return with_extras(replace(base, ops=ops), before, after)

    def _narrowed(self, cost: Cost) -> Cost:
        product = linear_product(cost)
        assert product is not None
        inputs = product.rows * product.inputs
        smaller = with_weights(cost, 1, self.precision, self.precision)
        shape = cost.work
        assert isinstance(shape, Product)
        tiled = replace(shape, m=max(shape.m, _TILE_ROWS), n=max(shape.n, FEWEST_ROWS))
        return replace(smaller, read_bytes=max(smaller.read_bytes - inputs, smaller.weight_bytes), work=tiled)

    def _kernels_before(self, product: LinearProduct, outcome: Outcome) -> list[Extra]:
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

    def _kernels_after(self, product: LinearProduct, outcome: Outcome) -> list[Extra]:
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


_KNOWN = outcomes(__file__)
ROW_STREAM = _KNOWN["row_stream"]
TENSOR_STREAM = _KNOWN["tensor_stream"]
"""Rate of the GEMM relative to its model. With one scale per row it uses CUTLASS's kernel; with one scale per tensor it
uses cuBLASLt's, whose tiles are inefficient for few rows."""

_CONFIG = "Float8DynamicActivationFloat8WeightConfig"
_FP16 = "torchao scales rows of bf16 weights, and these are fp16: load them in bf16, or use fp8-dynamic:per-tensor."


class FP8Dynamic(DynamicQuantization):
    """Weights in fp8, activations scaled and cast to fp8 before each GEMM (torchao).

    GEMMs run at 0.75 (0.6 to 1.0) of the fp8 rate, on tiles of at least 16 rows. Before each one, the input is
    scaled and cast row by row: seven launches in eager code and the host time of 45 (25 to 55) plain launches in
    torchao (245 µs per layer on an H200 host); compiled, one launch. `fp8-dynamic:per-tensor` uses one scale, a second
    reduction, and cuBLASLt's kernels (0.5 of the rate). torchao scales rows of bf16 weights only.

    *Hurts* with few rows (published: a decode of Llama-3.1-8B on an H100, 0.92 times as fast per tensor, 1.22 per row;
    the rates above are from it), and in host-bound steps.

    *Refused* before sm89, and for fp16 unless `per-tensor`.
    """

    id = "fp8-dynamic"
    precision = "fp8"
    needs = "float8-dynamic"
    dispatch = _KNOWN["fp8_dynamic_dispatch"]
    excludes: Mapping[str, str] = other_formats("fp8-dynamic")

    def __init__(self, per_tensor: bool = False) -> None:
        self.per_tensor, self.granularity = per_tensor, "PerTensor" if per_tensor else "PerRow"
        self.stream = TENSOR_STREAM if per_tensor else ROW_STREAM

    def with_argument(self, argument: str) -> Self:
        if argument not in ("per-row", "per-tensor"):
            raise InputError(f"{argument!r} is not a granularity.", "", "Write fp8-dynamic:per-row or :per-tensor.")
        return type(self)(argument == "per-tensor")

    def objection(self, base: Baseline) -> str | None:
        fp16 = which(base.ops.cost, lambda cost: linear_product(cost) is not None and cost.precision == "fp16")
        return super().objection(base) or (_FP16 if fp16.any() and not self.per_tensor else None)

    def _kernels_before(self, product: LinearProduct, outcome: Outcome) -> list[Extra]:
        """Return the kernels before each GEMM.

        With a single scale, the largest element is found in two passes over the whole tensor.
        """
        passes = super()._kernels_before(product, outcome)
        second = Extra(TORCHAO + "amax", moving(4096, 4, "fp32", "reduction"))
        return [*passes[:2], second, *passes[2:]] if self.per_tensor else passes

    def how_to(self, base: Baseline) -> str:
        return from_pretrained(f"{_CONFIG}(granularity={self.granularity}())", also=self.granularity)

    def apply(self, subject: "Subject") -> "Subject":
        if subject.settings.dtype == "fp16" and not self.per_tensor:
            raise refused(self, _FP16)
        from tracekit.apply import quantized  # only to run a model

        return quantized.with_torchao(subject, _CONFIG, granularity=self.granularity)


FEWEST_ROWS = 17
"""torch._int_mm needs more than 16 rows. With fewer, weights are widened, and the GEMM is computed in int32
without tensor cores."""

INT_MM = _KNOWN["int_mm"]
"""Host time around torch._int_mm in eager code, in plain launches."""
_FALLBACK_BYTES = 16
"""Bytes written and read per weight in that case: widened to int32 (4), times the input (4 read, 4 written), summed
(4 read)."""


class Int8Dynamic(DynamicQuantization):
    """Weights in int8, activations scaled and cast to int8 before each GEMM (torchao).

    As fp8-dynamic, with two more launches that scale the int32 sums, the host time of 130 (80 to 170) plain launches in
    torchao, and of 75 (30 to 110) more around the int8 GEMM (700 and 1,100 to 1,300 µs per layer on an H200 host).
    For up to 16 rows there is no int8 GEMM: the weights are widened to int32, multiplied and summed, 16 bytes per
    weight.

    *Hurts* while decoding (published: 0.09 times as fast).
    """

    id = "int8-dynamic"
    precision = "int8"
    needs = "int8-tensor"
    dispatch = _KNOWN["int8_dynamic_dispatch"]
    stream = _KNOWN["int8_dynamic_stream"]
    excludes: Mapping[str, str] = other_formats("int8-dynamic")
    caveats = (
        "Compile with it: eager code quantises each input in seven kernels and much Python, and scales in two.",
        f"Fewer than {FEWEST_ROWS} rows (decoding) have no int8 GEMM, and lose by far.",
    )

    def _kernels_before(self, product: LinearProduct, outcome: Outcome) -> list[Extra]:
        quantise = super()._kernels_before(product, outcome)
        if product.rows >= FEWEST_ROWS:
            entered = Extra(quantise[-1].name, quantise[-1].cost, host=quantise[-1].host + pick(INT_MM, outcome))
            return [*quantise[:-1], entered]
        widened = moving(product.weights, _FALLBACK_BYTES * product.weights, "fp32", "other")
        return [*quantise, Extra(TORCHAO + "mul (int32)", widened)]

    def _kernels_after(self, product: LinearProduct, outcome: Outcome) -> list[Extra]:
        """Return the kernels that multiply the int32 sums by the scales of rows and weights."""
        out = product.rows * product.outputs
        return [
            Extra(TORCHAO + "mul", moving(4 * out, 4 * out, "fp32")),
            Extra(TORCHAO + "mul", moving(4 * out, 2 * out, "bf16")),
        ]

    def how_to(self, base: Baseline) -> str:
        return from_pretrained("Int8DynamicActivationInt8WeightConfig()")

    def apply(self, subject: "Subject") -> "Subject":
        from tracekit.apply import quantized  # only to run a model

        return quantized.with_torchao(subject, "Int8DynamicActivationInt8WeightConfig")
