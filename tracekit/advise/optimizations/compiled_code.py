"""Guards of compiled code: what each call checks before it runs the code that was generated for its inputs."""

from tracekit.advise.optimization import Optimization
from tracekit.analyzers.core import Outcomes
from tracekit.analyzers.cost import Cost
from tracekit.analyzers.predict import (
    FIXED_IN,
    Baseline,
    Outcome,
    in_phase,
    pick,
    plain_launch_ns,
    unfused,
    version_text,
    where,
    with_fixed_transformers,
)

ENTERED = Outcomes(20.0, 10.0, 5.0)
"""Host time of entering the compiled code, per call, in plain launches."""
GUARDED = Outcomes(0.8, 0.55, 0.35)
"""Host time of the guards of a layer with weights, per call, in plain launches: the cache lookup of GPT-2 takes 4.5 µs
a GEMM, that of Mistral-7B 2.9."""


def guards_ns(base: Baseline, outcome: Outcome) -> float:
    """Return the host time that a step takes to enter compiled code without breaks, in nanoseconds."""
    forward = ~in_phase(base.ops, "backward")
    guarded = pick(GUARDED, outcome) * (where(base.ops, _has_weight) & forward).sum()
    return float(pick(ENTERED, outcome) * forward_passes(base) + guarded) * plain_launch_ns(base)


def forward_passes(base: Baseline) -> int:
    """Return the number of forward passes in one step.

    Generating takes one pass per token; the pass over the prompt yields the first token.
    """
    capture = base.source.capture
    return capture.new_tokens if capture and capture.workload == "generate" else 1


def _has_weight(cost: Cost | None) -> bool:
    return cost is not None and cost.family in ("gemm", "convolution") and cost.weight_bytes > 0


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
