"""A made-up verification of the made-up run: one gain as predicted, one outside, one that could not be had."""

from msgspec.structs import replace

from tracekit.analyzers.core import Interval
from tracekit.analyzers.results import Analysis, Difference, Verification, Verified
from tracekit.analyzers.trace import Latency

BEFORE = Latency(2_104.5, 2_051.25, 2_310.0, 50)


def verified(analysis: Analysis) -> Analysis:
    graphs, batching, fused = analysis.recommendations
    results = (
        Verified(
            graphs.id,
            graphs.title,
            graphs.speedup,
            Interval(7.1, 7.3, 7.6),
            before=BEFORE,
            after=Latency(288.0, 280.0, 300.0, 50),
            peak_memory_bytes=702_000_000,
            difference=Difference(1e-5, 2.5e-4, None, 0.998),
        ),
        Verified(batching.id, batching.title, batching.speedup, Interval(4.1, 4.2, 4.3), before=BEFORE, after=BEFORE),
        Verified(fused.id, fused.title, fused.speedup, None, error="No patch is known for this model."),
    )
    verification = Verification("0.1.0", {}, 0, "NVIDIA H200", {}, 1, "tokens", 620_000_000, results)
    return replace(analysis, verified=verification)
