"""Advice for runs in which transformers builds an attention mask while a step is compiled or captured."""

from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.transforms.traced_masks import FIXED_IN, unfused, with_fixed_transformers
from tracekit.analyzers.transforms.versions import version_text
from tracekit.optimizations.base import Optimization


def advice(optimization: Optimization, base: Baseline) -> tuple[str, ...]:
    """Return a line with the version that fixes it and the speed-up with that version; empty if attention stays
    fused."""
    if not unfused(base).any():
        return ()
    gain = optimization.expected_speedup(with_fixed_transformers(base))
    version = version_text(base, "transformers")
    return (
        f"transformers {version} builds a mask while tracing that rules fused attention out; from "
        f"{'.'.join(map(str, FIXED_IN))} on it does not: {gain:.2f} times then.",
    )
