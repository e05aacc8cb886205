"""Weights in 4 bits, in groups with one scale each."""

from collections.abc import Mapping

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.values import Costs
from tracekit.analyzers.transforms.outcome import Outcome, pick
from tracekit.optimizations.shared.weight_formats import from_pretrained, other_formats
from tracekit.optimizations.shared.weight_only import WeightOnly
from tracekit.subjects import quantized
from tracekit.subjects.subject import Subject

GROUP = 128
"""Number of weights that share a scale and a zero point, of two bytes each."""
KERNEL_ERROR = Interval(1.4, 1.1, 0.9)
"""Time relative to the kernel model, which was fitted to kernels that ran repeatedly with parts of their weights in
the L2 cache."""
WIDENING_TILES = 1.06
"""Time of a GEMM whose tiles widen weights in shared memory (such as Marlin), relative to the plain GEMM, with many
rows: 0.94 times as fast at 256 rows on an A100, as published."""


class Int4WeightOnly(WeightOnly):
    """Weights in int4, with a scale and a zero point for each 128 weights (torchao's tinygemm kernels).

    The kernels widen the weights again for every 16 rows; their time was fitted on an H200. Eager code adds the host
    time of four (1 to 6) plain launches per layer for the tensor subclass (18 to 26 µs on an H200 host).

    *Hurts* from about 16 to 64 rows on, and on small layers (published, A100: 2.05 times as fast at one row, 0.94 at
    256 rows with kernels that widen tiles, 0.42 for layers of 0.5 to 4 million weights).
    """

    id = "int4-weight-only"
    title = "Weights in int4"
    aliases = ("int4",)
    costs = Costs("weights a quarter of 16 bits", "a visible loss: measure it", "a library")
    switches: Mapping[str, str] = {
        "vllm": "vllm serve MODEL-AWQ --quantization awq_marlin  # a checkpoint in int4, such as AWQ or GPTQ",
        "sglang": "python -m sglang.launch_server --model-path MODEL --torchao-config int4wo-128",
    }
    excludes: Mapping[str, str] = other_formats("int4-weight-only")
    eager = True
    bits = 4
    scales_bytes = 4 / GROUP
    needs = "bf16"
    caveats = (
        "Quality drops measurably: check perplexity, and use calibrated weights (AWQ, GPTQ) if it matters.",
        "Steps with many rows (from 16 to 64 on) become slower: unpacking costs more than fewer bytes save.",
    )

    def kernel_ns(self, narrow_ns: float, before_ns: float, before: Cost, base: Baseline, outcome: Outcome) -> float:
        """Return the time by the model of tinygemm's kernels, which widen weights again for every 16 rows.

        At best, other kernels are used.
        """
        tinygemm = narrow_ns * pick(KERNEL_ERROR, outcome)
        return min(tinygemm, before_ns * WIDENING_TILES) if outcome == "high" else tinygemm

    def how_to(self, base: Baseline) -> str:
        configuration = f'Int4WeightOnlyConfig(group_size={GROUP}, int4_packing_format="tile_packed_to_4d")'
        return from_pretrained(configuration)

    def apply(self, subject: Subject) -> Subject:
        """Quantize in the layout of PyTorch's own kernel, which requires bf16."""
        return quantized.with_torchao(
            subject.with_dtype("bf16"), "Int4WeightOnlyConfig", int4_packing_format="tile_packed_to_4d"
        )
